"""Upload of pipelines to a Kubeflow Pipelines server, and start, progress and end of runs."""
