"""Training a policy on trajectories.

``examples`` makes training examples of rollouts, ``batches`` plans and packs them, ``objectives`` says
what is minimised, ``trainer`` does it with ``transformers.Trainer``, and ``steps`` is what a pipeline's
component calls. The trainer knows no method: it is handed an objective.
"""
