"""ProGraph-R1: an agent that queries a retriever turn by turn, trained online with a reward for each step.

Suggested reading order: ``grammar`` and ``prompts`` (messages), ``agent`` (the dialogue), ``structure`` and ``rewards``
(rewards of turns and rollouts), ``step_credit`` (step-wise GRPO) and ``step_progress``, ``measures``,
``settings``. Any retrieval method can be used (``retrieval.method``).
"""
