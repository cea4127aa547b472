"""Training a policy on trajectories.

``examples`` makes training examples of rollouts, ``batches`` plans and packs them, ``objectives`` says
what is minimised, ``trainer`` does it with ``transformers.Trainer``, ``steps`` is a pipeline's training
step, and ``launch`` starts it on as many processes as it needs. The trainer knows no method: it is
handed an objective.
"""
