"""Removal of secrets from facts, before they are stored or shown."""

from __future__ import annotations

import os
import re
from typing import Any, TypeVar

from pydantic import BaseModel

from platform_sdk.credentials import without_credentials

M = TypeVar("M", bound=BaseModel)

HIDDEN = "***"
_BEARER = re.compile(r"(?i)(\bbearer|authorization[\"']?\s*[:=,]\s*b?[\"']?basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_ASSIGNED = re.compile(
    # A number or a sentence after "tokens" is no secret, nor is what follows "tokenizer".
    r"(?i)((?:token(?!iz|s[\"']?\s*(?::\s|[=:]\s*\d+\b))|password|passwd|secret|api[_-]?key|access[_-]?key|credential)"
    r"[\w-]*+[\"']?\s*[=:]\s*[\"']?)"
    r"(?!\*\*\*)[^\s\"',;)}]+"
)
_TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{10,}|gh[pousr]_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}|"
    r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+)"
)
_SECRET_NAMES = re.compile(r"(?i)token|passw(?:or)?d|pwd|secret|(?:api|access|private)_?key|credential|cookie")
_SHORTEST = 8
"""Shorter values of secret variables are not replaced: they would also hide ordinary words."""


def redacted(model: M) -> M:
    """Return a copy without passwords in URLs, tokens, and values of this process's secret variables."""
    return type(model).model_validate(_without(model.model_dump(), _secret_values()))


def without_secrets(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return the text with its secrets replaced by ``***``."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    text = _BEARER.sub(rf"\1 {HIDDEN}", without_credentials(text))
    return _TOKENS.sub(HIDDEN, _ASSIGNED.sub(rf"\1{HIDDEN}", text))


def _secret_values() -> tuple[str, ...]:
    found = (
        value
        for name, value in os.environ.items()
        if _SECRET_NAMES.search(name) and len(value) >= _SHORTEST and not os.path.exists(value)
    )
    return tuple(sorted(found, key=len, reverse=True))  # one may be the beginning of another


def _without(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {name: _without(inner, secrets) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without(inner, secrets) for inner in value]
    return without_secrets(value, secrets) if isinstance(value, str) else value
