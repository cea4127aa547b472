"""The steps of a pipeline, one module each: what a step is given, what it hands on, and what it does.

The local runner, the Kubeflow component and the step that repeats others all call the same ``run``.
"""
