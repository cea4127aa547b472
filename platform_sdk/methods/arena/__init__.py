"""ARENA: a generator that names the passages it used, trained with adaptive rewards and a stable KL.

Reading order: ``grammar`` and ``prompts`` (the response format), ``rewards``, ``agent``, ``strategies`` (prompting
baselines), ``demonstrations`` (supervised baselines), ``method``, ``scoring`` (responses of other systems),
``settings``.
"""
