"""Dataset formats, one module each; see ``base.DatasetFormat``."""
