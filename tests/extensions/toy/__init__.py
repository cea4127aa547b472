"""A method that lives in the tests alone: what a new method needs is in this folder, and nowhere else."""
