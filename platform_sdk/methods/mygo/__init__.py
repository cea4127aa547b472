"""Mujica, a planner-worker agent, and MyGO, its training by selected trajectories.

Reading order: ``prompts`` and ``grammar`` (the texts), ``agents.planner_worker`` (the loop), ``agent`` (both
combined), ``agents.planner_rewards``, ``sampling`` (several attempts per question, the threshold),
``methods.selection`` (training data), ``method`` (the method, and GRPO on the same agent), ``settings``.
"""
