"""Sampling engines, and the loop that drives agents through them.

``engine`` says what an engine is, ``rollout`` runs agents against one, ``sampler`` writes a phase's rollouts down and
samples none twice, ``models`` finds and loads weights, ``pairs`` makes two models one policy; ``transformers_engine``,
``vllm_engine`` and ``openai_engine`` are the engines, and ``load.load_engine`` makes the one a recipe names;
``local_server`` starts a step's own vLLM server, which ``serve`` becomes.
"""
