"""Pipelines and runs on a Kubeflow Pipelines server: put there, started, followed, ended."""
