"""Plan of a run before it starts: its steps, its needs, its jobs on a cluster, and whether they fit."""
