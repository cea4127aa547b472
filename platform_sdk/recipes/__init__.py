"""One room per method; a paper can be read in its room from top to bottom."""
