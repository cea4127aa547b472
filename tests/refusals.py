"""Errors for users, recognised by their codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from platform_sdk.errors import Code, UserError


@contextmanager
def refused(code: Code) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expect the error of a code."""
    with pytest.raises(UserError) as caught:
        yield caught
    assert caught.value.code == code, caught.value
