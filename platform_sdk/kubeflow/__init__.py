"""Pipelines on Kubeflow: compiled (``compile.py``), and run on this machine (``local.py``). Knows no method."""
