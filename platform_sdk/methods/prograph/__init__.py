"""ProGraph-R1: an agent that asks a retriever turn by turn, trained online with a reward for each step.

Read in this order: ``grammar`` and ``prompts`` (what is said), ``agent`` (the dialogue), ``structure`` and ``rewards``
(what turns and rollouts are worth), ``credit`` (step-wise GRPO) and ``progress`` (its step progress), ``measures``,
``settings`` (what a recipe may change). The retrieval is whatever the recipe's ``retrieval.method`` names.
"""
