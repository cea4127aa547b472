"""Studies: a table of a paper as one file, whose cells are runs."""
