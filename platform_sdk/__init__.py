"""hopforge: train retrieval-augmented question-answering agents from configuration."""

__version__ = "0.1.0"
