"""The dataset formats, one a file; see ``base.DatasetFormat``."""
