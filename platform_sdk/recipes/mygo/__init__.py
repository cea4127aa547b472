"""Mujica, a planner-worker agent, and MyGO, its training by selected trajectories.

Read in this order: ``prompts`` and ``grammar`` (what is said), ``agent`` (who says it when), ``rewards`` and
``measures`` (what it is worth), ``sampling`` (several attempts per question, the threshold), ``selection`` (what is
learned from), ``steps`` (what the pipeline's components call, GRPO on the same agent among it), ``setting`` (what these
share), ``settings`` (what a recipe may change).
"""
