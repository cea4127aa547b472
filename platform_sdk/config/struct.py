"""Base of everything that is read from a file: a recipe's structs, declarations, specifications of steps."""

from pydantic import BaseModel, ConfigDict


class Struct(BaseModel):
    """A pydantic model that is immutable and allows neither unknown fields nor infinite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
