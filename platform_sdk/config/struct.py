"""Base of everything that is read from a file: a recipe's structs, declarations, specifications of steps."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Discriminator

from platform_sdk.config.bounded_yaml import FieldPath


class Struct(BaseModel):
    """A pydantic model that is immutable and allows neither unknown fields nor infinite numbers.

    Its validator is built at its first use: a model that only stands inside others never needs one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def equal_to(default: Any) -> Callable[[Any], bool]:
    """Return an ``exclude_if`` that leaves a field out at its default, so settings without it keep their digest."""
    return lambda value: bool(value == default)


def by_type(*, unnamed: str, other: str) -> Discriminator:
    """Return the discriminator of a union of structs by their ``type``, each tagged with it.

    Args:
        unnamed: tag of a struct without a ``type``.
        other: tag of a value that is no struct.
    """

    def type_of(value: Any) -> str:
        named = value.get("type", unnamed) if isinstance(value, dict) else getattr(value, "type", other)
        return str(named)

    return Discriminator(type_of)


def models_in(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, BaseModel]]:
    """Yield every model in nested settings, an outer one before those inside it, with its path."""
    inside: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, BaseModel):
        yield path, value
        inside = value
    elif isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, tuple | list):
        inside = enumerate(value)
    for name, inner in inside:
        yield from models_in(inner, (*path, name))
