"""User-defined rewards of a recipe: functions named ``module:function``, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from platform_sdk.config.code import accepts_one_argument, find_function, import_definition

if TYPE_CHECKING:
    from platform_sdk.records import Rollout

RewardFunction = Callable[["Rollout"], float]


def check_reward(name: str) -> str:
    """Return ``module:function`` if it can be a reward, without importing its module.

    Raises:
        ValueError: it cannot be found, or cannot be called with a rollout alone.
    """
    if not accepts_one_argument(find_function(name)):
        raise ValueError(f"{name} cannot be called with a rollout alone; give its other parameters defaults")
    return name


RewardName = Annotated[str, Field(pattern=r"^[\w.]+:\w+$"), AfterValidator(check_reward)]
"""Name of a reward in a recipe."""


@cache
def load_reward(name: str) -> RewardFunction:
    """Import the function that a recipe names ``module:function``.

    Raises:
        UserError: its module cannot be imported.
    """
    found: RewardFunction = import_definition(name)
    return found
