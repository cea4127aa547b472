"""Training a policy on trajectories.

``credit`` assigns advantages to tokens, ``examples`` turns rollouts into training examples, and ``batches`` plans and
packs them; ``policy`` and ``logprobs`` compute log-probabilities under the policy, ``reference`` under the initial
policy; ``objectives`` defines the losses, and ``trainer`` minimises them with ``transformers.Trainer``. ``run`` trains
on given examples, ``online`` on rollouts sampled during training; ``steps`` is a pipeline's training step, and
``launch`` starts its processes. The trainer is independent of the method: it gets a source of steps and an objective.
"""
