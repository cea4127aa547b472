"""Training a policy on trajectories.

``credit`` says what each token is worth, and ``examples`` makes training examples of rollouts; ``batches``
plans and packs them; ``policy`` and ``logprobs`` say how likely a policy finds them, ``reference`` how likely
the one it started from does; ``objectives`` says what is minimised, and ``trainer`` does it with
``transformers.Trainer``. ``run`` trains on given examples, ``online`` on what the policy samples meanwhile;
``steps`` is a pipeline's training step, and ``launch`` starts it on as many processes as it needs. The trainer
knows no method: it is handed a source of steps and an objective.
"""
