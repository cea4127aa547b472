"""Kubeflow pipelines: compilation (``compile.py``), steps in pods (``pod.py``) and remote runs, for all methods."""
