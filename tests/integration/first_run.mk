# The first run of docs/cluster.md on the cluster of KUBECONFIG; checks that cannot run are skipped with a reason.
HOST      ?= $(KF_PIPELINES_ENDPOINT)
NAMESPACE ?=
QUEUE     ?=
CLUSTER   ?= cluster.yaml
RECIPE    ?= pipelines/mygo/world.yaml
MINUTES   ?= 90

.PHONY: test-cluster
test-cluster: install-dev  ## upload, submit, watch, cancel, retry, gc and jobs on a real cluster (HOST=URL), as a table
	$(BIN)/python -m tests.integration.first_run --host "$(HOST)" --namespace "$(NAMESPACE)" --queue "$(QUEUE)" \
	  --cluster "$(CLUSTER)" --recipe "$(RECIPE)" --minutes $(MINUTES)
