"""ARENA, a generator that says which passages it used, trained with adaptive rewards and a stable KL.

Read in this order: ``grammar`` and ``prompts`` (what is said), ``rewards`` (what it is worth), ``agent`` (who says it),
``strategies`` (the prompting baselines), ``demonstrations`` (the supervised baselines), ``method`` (all of it as a
method), ``scoring`` (responses made elsewhere), ``settings`` (what a recipe may change).
"""
