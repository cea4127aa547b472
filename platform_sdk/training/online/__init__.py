"""Learning from what the policy itself has just sampled: GRPO's loop.

``questions`` says which questions an update takes up, ``groups`` samples a group of rollouts at each, ``source``
makes the trainer's optimiser steps of them the moment they are asked for, ``sync`` gives the sampling engine the
new weights, ``updates`` writes down what happened, and ``loop.train_online`` puts these together. The trainer is
the one of every other training: its steps just do not exist yet when it starts.
"""
