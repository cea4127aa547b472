"""User-defined rewards of a recipe: functions named ``module:function``, checked before anything runs."""

from __future__ import annotations

import math
import sys
import traceback
from functools import cache
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from platform_sdk.config.code import accepts_one_argument, find_function, import_definition
from platform_sdk.display import excerpt, shortened
from platform_sdk.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.records import Rollout


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


_loaded = cache(import_definition)


def own_reward(name: str, rollout: Rollout) -> float:
    """Return the reward of a rollout by the function that a recipe names ``module:function``.

    Raises:
        UserError: its module cannot be imported, or the function raises or does not return a finite number.
    """
    function = _loaded(name)
    place = f"{name}: question {shortened(rollout.question.id)}, attempt {rollout.attempt}"
    remedy = "correct the function, then repeat the command"
    try:
        value = function(rollout)
    except (Exception, SystemExit) as error:  # of foreign code
        frames = traceback.extract_tb(error.__traceback__)
        source = getattr(sys.modules.get(function.__module__), "__file__", None)
        frame = next((frame for frame in reversed(frames) if frame.filename == source), frames[-1])
        cause = shortened(f"{type(error).__name__}: {error}", 300)
        raise UserError(f"{place}: the reward failed: {cause} ({frame.filename}:{frame.lineno}); {remedy}") from error
    try:
        reward = float(value)
    except Exception:  # of foreign types, e.g. a tensor
        reward = math.nan
    if not math.isfinite(reward):
        raise UserError(f"{place}: the reward is {excerpt(value)}, which is not a finite number; {remedy}")
    return reward
