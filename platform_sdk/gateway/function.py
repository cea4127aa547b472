"""A Python function as a program: ``python -m platform_sdk.gateway.function MODULE:NAME`` calls it with the question.

The function, async or not, gets the question as a dictionary, and returns its answer: a text, or a dictionary with
``answer`` (see docs/programs.md). It finds the gateway in the environment, as every program does.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from importlib import import_module


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    function = getattr(import_module(module), name)
    answer = function(json.load(sys.stdin))
    if inspect.isawaitable(answer):
        answer = asyncio.run(_awaited(answer))
    text = None if answer is None else str(answer)
    # A line of its own, even if the function printed text without an end of line.
    print("\n" + json.dumps(answer if isinstance(answer, dict) else {"answer": text}))


async def _awaited(answer: object) -> object:
    return await answer  # type: ignore[misc]


if __name__ == "__main__":
    main()
