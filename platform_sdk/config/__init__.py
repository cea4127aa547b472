"""What a recipe and a pipeline may say. Imports nothing heavy, so that ``hopforge validate`` is instant."""
