"""An example of a recipe's own reward: a function from a rollout to a number (``agent.rewards.extra``)."""

from __future__ import annotations

from platform_sdk.records import Rollout

FREE_TOKENS = 24


def brevity(rollout: Rollout) -> float:
    """Return 1 for a response of at most 24 tokens, and 24 divided by their number for a longer one."""
    spoken = sum(rollout.main.agent_mask)
    return 1.0 if spoken <= FREE_TOKENS else FREE_TOKENS / spoken
