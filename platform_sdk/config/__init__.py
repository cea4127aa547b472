"""Models of recipes, pipelines and clusters. Imports nothing heavy, so that ``hopforge validate`` is instant."""
