"""Origin and use of models and data, from the manifests of all runs in a folder."""
