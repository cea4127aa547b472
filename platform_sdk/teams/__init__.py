"""Teams that share a cluster: the manifests of each, from one file."""
