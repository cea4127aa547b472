# hopforge: the two commands of the README, and what they stand on.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The CPU build of PyTorch. Where the default index serves CUDA builds only, add the CPU index:
#   make demo PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_FLAGS ?=

.PHONY: demo test install install-dev lint clean

demo: install  ## run the embedded default and show what it learned
	$(BIN)/hopforge run pipelines/mygo/world.yaml

test: install-dev lint  ## everything that must pass
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint images/Dockerfile

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(PIP_FLAGS) torch==2.13.0
	$(BIN)/pip install --quiet $(PIP_FLAGS) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet $(PIP_FLAGS) --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) runs

include tests/integration/vllm.mk
include images/images.mk
include manifests/manifests.mk
