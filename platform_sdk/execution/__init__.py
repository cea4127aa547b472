"""Execution of a plan on one machine: the walk through its tasks, the warm worker, and the run directory's lock."""
