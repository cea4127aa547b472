"""Studies: files that describe a paper's table, whose cells are runs."""
