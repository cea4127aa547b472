"""Rewards that a recipe brings along: functions named ``module:function``, found and checked before anything runs."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import cast

from platform_sdk.records import Rollout

RewardFunction = Callable[[Rollout], float]


def load_reward(name: str) -> RewardFunction:
    """The function that a recipe names ``module:function``.

    Raises:
        ValueError: it cannot be imported, or cannot be called with a rollout alone.
    """
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name} cannot be imported: {error}; the module must be on the Python path") from error
    if not callable(found):
        raise ValueError(f"{name} is no function; a reward is a function from a rollout to a number")
    try:
        inspect.signature(found).bind(None)
    except TypeError as error:
        raise ValueError(f"{name} cannot be called with a rollout alone: {error}") from error
    return cast(RewardFunction, found)
