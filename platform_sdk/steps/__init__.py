"""Steps of a pipeline, one module each, with inputs, outputs and ``run``.

The local runner, the Kubeflow component and the step that repeats others all call the same ``run``.
"""
