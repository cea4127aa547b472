"""Open-domain baselines without training: closed book, chain of thought, retrieve-and-read, IRCoT.

Reading order: ``prompts``, ``agent`` (the strategies), ``method``, ``settings``.
"""
