"""Mujica, a planner-worker agent, and MyGO, its training by selected trajectories.

Read in this order: ``prompts`` and ``grammar`` (what is said), ``agent`` (who says it when), ``sampling``
(several attempts per question, the threshold), ``selection`` (what is learned from), ``steps`` (what the
pipeline's components call), ``settings`` (what a recipe may change).
"""
