"""Sampling engines, and the loop that drives agents through them.

``engine`` defines the interface of engines, ``rollout`` runs agents with one, ``sampler`` stores a phase's rollouts and
samples none twice, ``models`` finds and loads weights, ``pairs`` combines two models into one policy;
``transformers_engine``, ``vllm_engine`` and ``openai_engine`` are the engines, and ``load.load_engine`` starts the
recipe's; ``local_server`` starts a step's vLLM server (the process ``serve``).
"""
