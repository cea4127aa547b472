# The four images; see images/README.md.
REGISTRY ?= localhost
BUILDER  ?= podman
IMAGES   ?= launcher trainer sampler retriever
VERSION  := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
COMMIT   := $(shell git rev-parse HEAD 2>/dev/null)

.PHONY: images
images:  ## build the images on BASE, which must be named by digest (or be local)
	@case "$(BASE)" in *@sha256:*|localhost/*) ;; \
	  *) echo "name the base by digest: make images BASE=REGISTRY/python:3.11-slim-bookworm@sha256:…" >&2; exit 2;; esac
	set -e; for image in $(IMAGES); do \
	  $(BUILDER) build $(IMAGE_FLAGS) --file images/$$image/Dockerfile --tag $(REGISTRY)/hopforge/$$image:$(VERSION) \
	    --build-arg BASE=$(BASE) --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) .; done
