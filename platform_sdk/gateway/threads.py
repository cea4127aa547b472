"""Calls of one session: the thread that a call continues, its prompt's tokens, and the threads at the end.

A call continues an earlier one if its messages begin with that call's messages and reply. Its prompt is then that
call's prompt and sampled tokens, and the tokens of the text that the chat template adds. The text comes from a full
rendering in which sampled replies are replaced by placeholders of the same shape. If this rendering does not begin with
the earlier one, the template rewrites earlier text, and the call begins a new thread.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from platform_sdk.gateway.events import Reason
from platform_sdk.gateway.messages import FunctionCall, Message, digest, prefix_digests
from platform_sdk.gateway.templates import ChatTemplate
from platform_sdk.records import is_recordable
from platform_sdk.sampling.dialogue import opened
from platform_sdk.sampling.engine import Completion


@dataclass(eq=False)
class SampledCall:
    """One call: its messages, prompt and, after the engine's answer, the sampled tokens.

    Attributes:
        id: digest of the prompt, of its name, and of how often the session sent both before; the order of calls with
            different prompts or names does not change it.
        parent: the call that it continues; None for the first call of a thread.
        skeleton: the rendered prompt, with placeholders for replies sampled in this thread.
        placeholders: these replies' placeholders by position.
        prefixes: digests of the beginnings of ``messages``.
        rewritten: the messages continue a call whose text the template rewrites.
        plain: the prompt is text without a chat template.
        text: the reply as the policy wrote it.
        turn: the program's name for the call; None if it gave none.
    """

    id: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]
    token_ids: tuple[int, ...]
    parent: SampledCall | None
    skeleton: str
    placeholders: dict[int, Message]
    prefixes: list[str]
    rewritten: bool
    plain: bool = False
    stop: tuple[str, ...] = ()
    completion: Completion | None = None
    reply: Message | None = None
    text: str = ""
    turn: str | int | None = None

    @property
    def root(self) -> SampledCall:
        call = self
        while call.parent is not None:
            call = call.parent
        return call

    @property
    def shown(self) -> str:
        """Plain prompt and reply as the program has them."""
        return self.skeleton + (self.reply.content if self.reply else "")

    @property
    def hidden(self) -> str:
        """Text that the policy wrote and the reply leaves out: a stop string."""
        return self.text.removeprefix(self.reply.content) if self.reply else ""

    @property
    def length(self) -> int:
        """Number of tokens of prompt and reply."""
        return len(self.token_ids) + len(self.completion.token_ids if self.completion else ())


@dataclass(frozen=True)
class Thread:
    """Calls of which each continues the one before, and the reason why the first began a thread."""

    reason: Reason
    calls: tuple[SampledCall, ...]

    @property
    def length(self) -> int:
        return self.calls[-1].length

    @property
    def name(self) -> str:
        """Name that the program gave the first call; empty if none."""
        turn = self.calls[0].turn
        return "" if turn is None else str(turn)


@dataclass
class Threads:
    """Calls of a session and their order in threads. ``seed`` enters the ids of calls."""

    template: ChatTemplate
    seed: int
    calls: list[SampledCall] = field(default_factory=list)
    _times: Counter[str] = field(default_factory=Counter)
    _after: dict[str, SampledCall] = field(default_factory=dict)

    def ask(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        stop: Sequence[str] = (),
        turn: str | int | None = None,
    ) -> SampledCall:
        """Register a call and return it with its prompt's tokens.

        Raises:
            Refusal: the template does not accept the messages.
        """
        prefixes = prefix_digests(list(tools), messages)
        earlier = next((self._after[each] for each in reversed(prefixes[:-1]) if each in self._after), None)
        call = None if earlier is None else self._continued(earlier, messages, prefixes)
        if call is None:
            skeleton = self.template.render(messages, tools)
            ids = tuple(self.template.encode(skeleton))
            call = SampledCall(
                "", tuple(messages), tuple(tools), ids, None, skeleton, {}, prefixes, rewritten=earlier is not None
            )
        return self._registered(call, stop, turn)

    def forget(self, call: SampledCall) -> None:
        """Forget a call that gets no answer: a prompt may be large."""
        self.calls.remove(call)

    def ask_text(
        self, prompt: str | Sequence[int], stop: Sequence[str] = (), turn: str | int | None = None
    ) -> SampledCall:
        """Register a call whose prompt is plain text or tokens; no chat template applies.

        A prompt that begins with an earlier call's prompt and reply continues the call, unless the reply ended with an
        end token, which the program cannot see.
        """
        plain = [call for call in self.calls if call.plain and call.reply is not None]
        decode, encode = self.template.tokenizer.decode, self.template.encode
        if isinstance(prompt, str):
            text = prompt
            earlier = _longest(call for call in plain if text.startswith(call.shown) and text != call.shown)
            rest = text[len(earlier.shown) :] if earlier else ""
            # The prompt may repeat a stop string that the reply left out.
            if earlier is not None and rest.startswith(earlier.hidden) and not self._ended(earlier):
                joined, ids = True, (*_all_ids(earlier), *encode(rest.removeprefix(earlier.hidden)))
            else:
                joined, ids = False, tuple(encode(text))
        else:
            ids = tuple(prompt)
            text = str(decode(list(ids)))
            earlier = _longest(call for call in plain if ids[: call.length] == _all_ids(call) != ids)
            rest, joined = str(decode(list(ids[earlier.length :]))) if earlier else "", earlier is not None
        messages: tuple[Message, ...] = (Message("user", text),)
        if earlier is not None and earlier.reply is not None:
            messages = (*earlier.messages, earlier.reply, Message("user", rest))
        parent, prefix = earlier if joined else None, digest("text", text)
        return self._registered(
            SampledCall("", messages, (), ids, parent, text, {}, [prefix], rewritten=False, plain=True), stop, turn
        )

    def _ended(self, call: SampledCall) -> bool:
        return call.completion is not None and self.template.ends(call.completion)

    def _registered(self, call: SampledCall, stop: Sequence[str], turn: str | int | None) -> SampledCall:
        call.stop, call.turn = tuple(stop), turn
        key = digest(call.token_ids, list(stop), *(() if turn is None else (turn,)))
        call.id = digest(self.seed, key, self._times[key])[:24]
        self._times[key] += 1
        self.calls.append(call)
        return call

    def _continued(self, earlier: SampledCall, messages: Sequence[Message], prefixes: list[str]) -> SampledCall | None:
        assert earlier.reply is not None
        assert earlier.completion is not None
        position = len(earlier.messages)
        placeholder, texts = self.template.placeholder(earlier.reply)
        placeholders = {**earlier.placeholders, position: placeholder}
        shown = [placeholders.get(i, message) for i, message in enumerate(messages)]
        skeleton = self.template.render(shown, earlier.tools)
        before = earlier.skeleton.removesuffix(opened(earlier.skeleton))
        said = next((before + text for text in texts if skeleton.startswith(before + text)), None)
        if said is None:
            return None
        ids = earlier.token_ids + earlier.completion.token_ids
        ids += self.template.joined(ids, skeleton[len(said) :])
        return SampledCall(
            "", tuple(messages), earlier.tools, ids, earlier, skeleton, placeholders, prefixes, rewritten=False
        )

    def answer(self, call: SampledCall, completion: Completion, *, parse: bool = True) -> Message:
        """Record the sampled tokens of a call and return the reply; ``parse``: look for calls of functions."""
        call.completion = completion
        call.text = self.template.text(completion, "" if call.plain else call.skeleton)
        given = 0 if call.plain else len(opened(call.skeleton))  # the prompt's own text ends no reply
        ends = [at for stop in call.stop if (at := call.text.find(stop, given)) >= 0]
        content = call.text[: min(ends)] if ends else call.text
        form = self.template.format if parse and call.tools else None
        parsed = None if form is None else form.parse(content, call.tools)
        if parsed is None or not _writable(parsed[1]):
            call.reply = Message("assistant", content)
        else:
            content, found = parsed
            calls = tuple(FunctionCall(f"call_{call.id[:20]}{i}", *each) for i, each in enumerate(found))
            call.reply = Message("assistant", content, calls)
        self._after[digest(call.prefixes[-1], call.reply.key())] = call
        return call.reply

    def threads(self) -> list[Thread]:
        """Return the threads of all answered calls, the longest first. The order in which calls came has no effect."""
        done = sorted((call for call in self.calls if call.completion is not None), key=lambda call: call.id)
        children: dict[SampledCall | None, list[SampledCall]] = {}
        for call in done:
            children.setdefault(call.parent, []).append(call)
        reach: dict[SampledCall, int] = {}
        for call in sorted(done, key=lambda call: -len(call.messages)):
            reach[call] = max([call.length, *(reach[child] for child in children.get(call, []))])
        heirs = {
            parent: max(calls, key=lambda call: (reach[call], call.id))
            for parent, calls in children.items()
            if parent is not None
        }
        firsts = [call for call in done if call.parent is None or heirs[call.parent] is not call]
        threads = []
        for first in firsts:
            calls = [first]
            while calls[-1] in heirs:
                calls.append(heirs[calls[-1]])
            threads.append(Thread(_reason(first, done), tuple(calls)))
        return sorted(threads, key=lambda thread: (-thread.length, thread.calls[0].id))


def _writable(calls: Iterable[tuple[str, str]]) -> bool:
    """Return True if a record can hold names and arguments."""
    try:
        return is_recordable([(name, json.loads(arguments)) for name, arguments in calls])
    except (ValueError, RecursionError):
        return False


def _all_ids(call: SampledCall) -> tuple[int, ...]:
    return call.token_ids + (call.completion.token_ids if call.completion else ())


def _longest(calls: Iterable[SampledCall]) -> SampledCall | None:
    return max(calls, key=lambda call: call.length, default=None)


def _reason(first: SampledCall, done: Sequence[SampledCall]) -> Reason:
    if first.parent is not None:
        return "branch"
    if first.rewritten:
        return "template"
    replies = {(other.reply.content, other.reply.calls) for other in done if other.reply is not None}
    if any(m.role == "assistant" and (m.content, m.calls) in replies for m in first.messages):
        return "edited"
    start = _through_first_user(first)
    shorter = (other for other in done if other is not first and len(other.messages) < len(first.messages))
    return "edited" if any(_through_first_user(other) == start for other in shorter) else "new"


def _through_first_user(call: SampledCall) -> tuple[Message, ...]:
    """Return the messages through the user's first; none if the conversation has no user."""
    for place, message in enumerate(call.messages):
        if message.role == "user":
            return call.messages[: place + 1]
    return call.messages
