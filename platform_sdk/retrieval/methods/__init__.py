"""Shipped retrieval methods, one module each; see ``platform_sdk.retrieval.method``."""
