"""Metrics equal to the official scripts, intervals, comparisons and report pages."""
