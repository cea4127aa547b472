"""Mujica, a planner-worker agent, and MyGO, its training by selected trajectories.

Read in this order: ``prompts`` and ``grammar`` (what is said), ``agents.planner_worker`` (who says it when), ``agent``
(both joined), ``agents.planner_rewards`` (what it is worth), ``sampling`` (several attempts per question, the
threshold), ``methods.selection`` (what is learned from), ``method`` (all of it as a method, GRPO on the same agent
among it), ``settings`` (what a recipe may change).
"""
