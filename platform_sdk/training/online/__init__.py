"""Online training on the policy's own samples: GRPO's loop.

``questions`` selects the questions of an update, ``groups`` samples a group of rollouts for each, ``source`` builds the
trainer's optimiser steps on demand, ``sync`` sends the new weights to the sampling engine, ``recorder`` logs the
updates, and ``loop.train_online`` combines them. The trainer is the same as in offline training.
"""
