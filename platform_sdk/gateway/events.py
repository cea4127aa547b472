"""Events that a session's inbox receives, and the bounds of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from platform_sdk.sampling.engine import SamplingParams

ProgramOutcome = Literal["answered", "error", "timeout", "limit", "no_answer"]
Reason = Literal["new", "edited", "template", "branch"]
"""Reason of a thread: an unrelated prompt, a changed history, a template that rewrites earlier text, or a second
continuation of one reply."""


@dataclass(frozen=True)
class Bounds:
    """Limits of one session; ``None`` for no limit.

    Attributes:
        calls: requests for completions.
        sampled_tokens: tokens sampled over all calls; the call that exceeds them is still answered.
        request_bytes: bytes of one HTTP request.
        concurrent: requests in progress at once.
        results: results of all searches; all of them are recorded.
    """

    calls: int | None = 200
    sampled_tokens: int | None = None
    request_bytes: int = 2**22
    concurrent: int = 32
    results: int = 100_000


@dataclass(frozen=True)
class CompletionAsked:
    """A prompt to sample from: give it to ``Generate`` and the completion to ``Session.completed``.

    ``params`` has the call's seed; ``thread`` names the dialogue to the engine.
    """

    id: str
    token_ids: tuple[int, ...]
    params: SamplingParams
    thread: str


@dataclass(frozen=True)
class SearchAsked:
    """A search by the program: answer with ``Session.found``."""

    id: str
    query: str
    k: int


@dataclass(frozen=True)
class Ended:
    """The end of the program.

    Attributes:
        status: exit status; None if there is none (a service, a stopped program).
        killed: the program ended by a SIGKILL that hopforge did not send.
    """

    outcome: ProgramOutcome
    status: int | None = None
    stderr: str = ""
    stdout: str = ""
    killed: bool = False


Event = CompletionAsked | SearchAsked | Ended
