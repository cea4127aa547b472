"""Sampling engines, and the loop that drives agents through them.

``engine`` says what an engine is, ``rollout`` runs agents against one, ``models`` finds and loads
weights; ``transformers_engine``, ``vllm_engine`` and ``openai_engine`` are the engines, and
``load.load_engine`` makes the one a recipe names.
"""
