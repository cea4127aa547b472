"""Sessions: one attempt of a program at one question, its waiting requests and its record."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from threading import RLock
from typing import Any

from platform_sdk.gateway.attribution import Search, evidence_shown, led_to, place_in_reply
from platform_sdk.gateway.events import Bounds, CompletionAsked, Event, SearchAsked
from platform_sdk.gateway.messages import Message
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.templates import ChatTemplate
from platform_sdk.gateway.threads import SampledCall, Thread, Threads
from platform_sdk.gateway.trajectories import trajectory
from platform_sdk.records import Evidence, Trajectory
from platform_sdk.sampling.awaiting import Inbox
from platform_sdk.sampling.engine import Completion, PromptTooLong, SamplingParams
from platform_sdk.sampling.seeds import seed_of

logger = logging.getLogger(__name__)
CLOSED = "the session of this token has ended"


class Session:
    """One attempt of a program. HTTP requests become events of ``inbox``; the rollout loop answers them.

    Attributes:
        token: secret part of the session's URLs.
        base_url: URL for OpenAI clients.
        search_url: URL for searches by plain HTTP.
        mcp_url: URL of the session's MCP server.
        inbox: events for ``Await``.
        notes: settings in the program's requests that the recipe overrides, each once.
        limit: the limit that the program reached, if any.
    """

    def __init__(
        self, template: ChatTemplate, root_url: str, token: str, *, seed: int, name: str, role: str, bounds: Bounds,
        defaults: SamplingParams, max_model_len: int, closing: Callable[[Session], None],
        given: tuple[Evidence, ...] = (),
    ) -> None:  # fmt: skip
        self.token, self.name, self.role, self.seed = token, name, role, seed
        self.base_url, self.search_url = f"{root_url}/s/{token}/v1", f"{root_url}/s/{token}/search"
        self.mcp_url = f"{root_url}/s/{token}/mcp"
        self.bounds, self.defaults, self.max_model_len = bounds, defaults, max_model_len
        self.inbox = Inbox()
        self.notes: tuple[str, ...] = ()
        self.limit: str | None = None
        self.template = template
        self._threads = Threads(template, seed)
        self._closing = closing
        self._lock = RLock()
        self._closed = False
        self._waiting: dict[str, Future[Any]] = {}
        self._calls: dict[str, tuple[SampledCall, bool]] = {}
        self._answered: list[SampledCall] = []
        self._searches: list[Search] = []
        self._given = given
        self._open = self._asked = self._sampled = self._searched = self._results = 0

    def enter(self) -> None:
        """Count a request in progress.

        Raises:
            Refusal: the session has ended, or has too many requests in progress.
        """
        with self._lock:
            if self._closed:
                raise Refusal(401, CLOSED, code="invalid_api_key")
            if self._open >= self.bounds.concurrent:
                reason = f"the session has {self._open} requests in progress; send at most {self.bounds.concurrent}"
                raise Refusal(429, reason, code="concurrency")
            self._open += 1

    def leave(self) -> None:
        """Count a finished request."""
        with self._lock:
            self._open -= 1

    def note(self, text: str) -> None:
        """Record a setting that the recipe overrides, once."""
        with self._lock:
            if text not in self.notes:
                self.notes += (text,)

    def ask(
        self, messages: tuple[Message, ...], tools: tuple[dict[str, Any], ...], stop: tuple[str, ...], *,
        parse: bool = True, turn: str | int | None = None,
    ) -> tuple[SampledCall, Future[Message]]:  # fmt: skip
        """Put a request for a completion into the inbox; the future gets the reply.

        Args:
            parse: look for calls of functions in the reply.
            turn: the program's name for the call, from which its seed follows; None: the seed follows from the prompt.

        Raises:
            Refusal: the session has ended or reached a bound, or the prompt is too long.
        """
        return self._asked_for(lambda: self._threads.ask(messages, tools, stop, turn), parse, turn)

    def ask_text(
        self, prompt: str | Sequence[int], stop: tuple[str, ...], *, turn: str | int | None = None
    ) -> tuple[SampledCall, Future[Message]]:
        """Put a request to complete a text or tokens into the inbox; the future gets the reply.

        Raises:
            Refusal: as ``ask``.
        """
        return self._asked_for(lambda: self._threads.ask_text(prompt, stop, turn), False, turn)

    def _asked_for(
        self, register: Callable[[], SampledCall], parse: bool, turn: str | int | None
    ) -> tuple[SampledCall, Future[Message]]:
        with self._lock:
            self._check_bounds()
            call = register()
            if not 0 < len(call.token_ids) < self.max_model_len:
                self._threads.forget(call)
                if not call.token_ids:
                    raise Refusal(400, "the prompt has no tokens", "prompt")
                reason = f"the prompt has {len(call.token_ids)} tokens; the model takes fewer than {self.max_model_len}"
                raise Refusal(400, reason, "messages", "context_length_exceeded")
            self._asked += 1
            params = replace(self.defaults, stop=call.stop, seed=seed_of(self.seed, call.id if turn is None else turn))
            self._calls[call.id] = (call, parse)
            future = self._waiting[call.id] = Future()
            thread = f"{self.name}/{call.root.id[:8]}"
        self.inbox.put(CompletionAsked(call.id, call.token_ids, params, thread))
        return call, future

    def _check_bounds(self) -> None:
        if self._closed:
            raise Refusal(401, CLOSED, code="invalid_api_key")
        for name, used, bound in (
            ("calls", self._asked, self.bounds.calls), ("sampled_tokens", self._sampled, self.bounds.sampled_tokens),
        ):  # fmt: skip
            if bound is not None and used >= bound:
                raise self._reached(name, bound)

    def _reached(self, name: str, bound: int) -> Refusal:
        self.limit = self.limit or name
        return Refusal(403, f"the session has reached its bound of {bound} {name}", code="limit")

    def search(self, query: str, k: int) -> Future[tuple[Evidence, ...]]:
        """Put a search into the inbox; the future gets the evidence.

        Raises:
            Refusal: the session has ended or reached its bound of results.
        """
        with self._lock:
            if self._closed:
                raise Refusal(401, CLOSED, code="invalid_api_key")
            self._results += k
            if self._results > self.bounds.results:
                raise self._reached("results", self.bounds.results)
            self._searched += 1
            asked = SearchAsked(f"search-{self._searched}", query, k)
            future: Future[Any] = Future()
            self._waiting[asked.id] = future
        self.inbox.put(asked)
        return future

    def asked(self, event: CompletionAsked) -> SampledCall:
        """Return the call that waits for a completion."""
        with self._lock:
            return self._calls[event.id][0]

    def completed(self, asked: CompletionAsked, completion: Completion) -> None:
        """Record a completion and answer its request."""
        with self._lock:
            if self._closed:
                return
            call, parse = self._calls.pop(asked.id)
            self._sampled += len(completion.token_ids)
            reply = self._threads.answer(call, completion, parse=parse)
            self._answered.append(call)
            future = self._waiting.pop(asked.id)
        _set(future, reply)

    def found(self, asked: SearchAsked, evidence: tuple[Evidence, ...]) -> None:
        """Record the results of a search and answer its request."""
        with self._lock:
            if self._closed:
                return
            after = led_to(asked.query, self._answered)
            self._searches.append(Search(asked.query, asked.k, tuple(evidence), after))
            future = self._waiting.pop(asked.id)
        _set(future, tuple(evidence))

    def refuse(self, asked: CompletionAsked | SearchAsked, error: Exception) -> None:
        """Answer a request with an error."""
        with self._lock:
            future = self._waiting.pop(asked.id, None)
            call, _ = self._calls.pop(asked.id, (None, False))
            if call is not None:
                self._threads.forget(call)
        if future is None:
            return
        if isinstance(error, PromptTooLong):
            error = Refusal(400, str(error), "messages", "context_length_exceeded")
        elif not isinstance(error, Refusal):
            logger.warning("session %s: request %s failed: %s", self.name, asked.id, error)
            error = Refusal(503, "the request could not be answered; the log of the run has the reason")
        if not future.done():
            future.set_exception(error)

    def put(self, event: Event) -> None:
        """Add an event, e.g. the program's end."""
        self.inbox.put(event)

    def close(self) -> None:
        """End the session: its token is dead, and waiting requests are refused."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = list(self._waiting.values()), {}
        self._closing(self)
        for future in waiting:
            if not future.done():
                future.set_exception(Refusal(503, CLOSED))

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Threads of the answered calls, the longest first."""
        with self._lock:
            return tuple(self._threads.threads())

    def main_first(self, main: str | None = None) -> tuple[Thread, ...]:
        """Return the threads, first the thread that has the call ``main``, else the longest.

        The others follow by the names of their first calls, numbers in them by value, then by length.
        """
        threads = self.threads
        named = re.split("[-_]", main)[-1] if main else None
        first = next((thread for thread in threads if any(call.id == named for call in thread.calls)), None)
        first = first or next(iter(threads), None)
        others = sorted((thread for thread in threads if thread is not first), key=_by_name)
        return () if first is None else (first, *others)

    def trajectories(self, main: str | None = None) -> tuple[Trajectory, ...]:
        """Return the threads as trajectories, in the order of ``main_first``; empty if no call was answered.

        ``main``: id of a completion as the program got it, or None.
        """
        with self._lock:
            searches = sorted(self._searches, key=place_in_reply)
        threads = self.main_first(main)
        shown = evidence_shown(threads, searches, self._given)
        return tuple(
            trajectory(
                thread, self.role if place == 0 else f"{self.role}/{place}", self.role, searches, shown[place],
                first=place == 0,
            )
            for place, thread in enumerate(threads)
        )  # fmt: skip


def _by_name(thread: Thread) -> list[str | int]:
    """Return a key that sorts threads by name, numbers in it by value: 2.0 before 10.0."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", thread.name))]


def _set(future: Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
