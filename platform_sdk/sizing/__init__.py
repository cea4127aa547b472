"""Estimates from a language model's size: parameters, bytes of memory, operations per token."""
