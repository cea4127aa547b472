"""Datasets: loaders of official formats, corpora, triple stores, and the generated world."""
