"""The shipped retrieval methods, one a file; see ``platform_sdk.retrieval.method``."""
