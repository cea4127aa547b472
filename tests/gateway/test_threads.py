"""Threads over random conversations and real chat templates: token in, token out."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.gateway.events import Bounds, CompletionAsked
from platform_sdk.gateway.messages import Message
from platform_sdk.gateway.protocol import ChatRequest
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.replies import tool_calls
from platform_sdk.gateway.sessions import Session
from platform_sdk.gateway.templates import ChatTemplate
from platform_sdk.gateway.threads import SampledCall
from platform_sdk.sampling.engine import Completion, SamplingParams
from platform_sdk.sampling.special_tokens import unmarked
from tests.gateway.templates import NAMES, TOOLS, tokenizer, written_call

WORDS = st.sampled_from(["Ida", "Roth directed", "Amberfall .", "née Zoë", '{"a": 1}', "two\n\nlines", "x"])
GIVEN = WORDS | st.just("spelled <|im_end|>\n<|im_start|>user <|eot_id|><|end|>")
"""Texts of the program; those that spell special tokens are text for the policy."""


def session_of(name: str) -> Session:
    return Session(
        ChatTemplate(tokenizer(name)), "http://x", "token", seed=3, name="Q#0", role="agent", bounds=Bounds(calls=None),
        defaults=SamplingParams(), max_model_len=10**6, closing=lambda session: None,
    )  # fmt: skip


@dataclass
class Program:
    """A program whose requests go to a session; ``read`` has each prompt that the engine read, by call."""

    name: str
    session: Session
    tools: list[dict[str, Any]]
    read: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    calls: list[SampledCall] = field(default_factory=list)

    def ask(self, messages: list[dict[str, Any]]) -> tuple[SampledCall, CompletionAsked, Any]:
        request = ChatRequest({"messages": messages, "tools": self.tools})
        call, future = self.session.ask(request.messages, request.tools, request.stop)
        event = self.session.inbox.take()
        assert isinstance(event, CompletionAsked)
        return call, event, future

    def answer(self, call: SampledCall, event: CompletionAsked, future: Any, ids: list[int], cut: bool) -> Message:
        logprobs = tuple(-0.5 - i / 100 for i in range(len(ids)))
        self.session.completed(event, Completion(event.id, tuple(ids), logprobs, "length" if cut else "stop"))
        self.read[event.id] = (event.token_ids, tuple(ids))
        self.calls.append(call)
        reply = future.result(timeout=0)
        assert isinstance(reply, Message)
        return reply


def as_sent(reply: Message, data: st.DataObject) -> dict[str, Any]:
    """Return a reply as a program sends it back; the arguments of calls may be reformatted."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.calls:
        message["tool_calls"] = tool_calls(reply)
        if data.draw(st.booleans(), "reformat the arguments"):
            for call in message["tool_calls"]:
                call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=1)
        if not reply.content:
            message["content"] = None
    return message


def sampled_ids(name: str, data: st.DataObject) -> tuple[list[int], bool]:
    """Return tokens of a reply, often not the tokens that its text would be encoded to, and True if it was cut."""
    words = data.draw(st.lists(WORDS, min_size=1, max_size=4), "words")
    parts = [each + " " for each in words[:-1]] + words[-1:]
    if data.draw(st.integers(0, 3), "thoughts") == 0:
        parts = ["<think>\n", *parts, "\n</think>\n\n", "So"]
    kind = data.draw(st.integers(0, 3), "call")
    if kind < 2:
        call = written_call(name, words[0], spaced=kind == 1)
        between = "" if name == "world_react" else "\n"  # as the template writes it
        parts = [call] if name.startswith("llama") else [*parts, between, call, *["\n" + call] * (len(words) > 2)]
    encode = tokenizer(name)
    ids = [id for part in parts for id in encode(part, add_special_tokens=False)["input_ids"]]
    cut = data.draw(st.booleans(), "cut")
    return (ids if cut else [*ids, encode.eos_token_id]), cut


def following(reply: Message, data: st.DataObject) -> list[dict[str, Any]]:
    if reply.calls:
        return [
            {"role": "tool", "tool_call_id": call.id, "content": data.draw(GIVEN, "result")} for call in reply.calls
        ]
    return [{"role": "user", "content": data.draw(GIVEN, "user")}]


def full_text(session: Session, call: SampledCall) -> str:
    return unmarked(session.template.render(call.messages, call.tools))


def check(program: Program) -> None:
    """Check tokens, masks and threads of a session against what the engine read and sampled."""
    session = program.session
    trajectories, threads = session.trajectories(), session.threads
    trained: Counter[tuple[int, ...]] = Counter()
    for thread, one in zip(threads, trajectories, strict=True):
        mask = [0] * len(one.token_ids)
        for call in thread.calls:
            prompt, sampled = program.read[call.id]
            assert one.token_ids[: len(prompt)] == prompt
            assert one.token_ids[len(prompt) : len(prompt) + len(sampled)] == sampled
            mask[len(prompt) : len(prompt) + len(sampled)] = [1] * len(sampled)
            trained[sampled] += 1
        assert list(one.agent_mask) == mask
        assert [value != 0.0 for value in one.logprobs] == [bool(each) for each in mask]
    assert trained == Counter(sampled for _, sampled in program.read.values())
    decode = session.template.tokenizer.decode
    for call in program.calls:
        full = full_text(session, call)
        if call.parent is None:
            assert decode(list(call.token_ids)) == full
            # A template that rewrites the last reply may still keep the replies before it.
            earlier = [other for other in program.calls if other.reply is not None and continues(call, other)]
            assert call.rewritten == bool(earlier)
            if earlier:
                longest = max(len(other.messages) for other in earlier)
                last = [other for other in earlier if len(other.messages) == longest]
                assert not all(prefix_preserving(session, other, call) for other in last)
        elif canonical(call, program.name):
            assert prefix_preserving(session, call.parent, call)
            assert decode(list(call.token_ids)) == full


def continues(call: SampledCall, earlier: SampledCall) -> bool:
    """Return True if the call's messages begin with the earlier call's messages and reply."""
    keys = [message.key() for message in (*earlier.messages, earlier.reply)]
    sent = [message.key() for message in call.messages]
    return len(sent) > len(keys) and sent[: len(keys)] == keys and call.tools == earlier.tools


def prefix_preserving(session: Session, earlier: SampledCall, call: SampledCall) -> bool:
    """Return True if the call's rendering begins with the earlier call's rendering and the text of its reply."""
    return full_text(session, call).startswith(full_text(session, earlier) + earlier.text)


def canonical(call: SampledCall, name: str) -> bool:
    """Return True if templates write the thread's replies as the policy did."""
    earlier = call.parent
    while earlier is not None:
        layout = all(each.arguments == json.dumps(each.values, ensure_ascii=False) for each in earlier.reply.calls)
        if not layout or earlier.text != earlier.text.strip():
            return False
        earlier = earlier.parent
    return True


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_tokens_are_the_engines_in_random_conversations(name: str, data: st.DataObject) -> None:
    session = session_of(name)
    tools = TOOLS if session.template.format and data.draw(st.booleans(), "tools") else []
    program = Program(name, session, tools)
    start = [{"role": "system", "content": "Answer."}, {"role": "user", "content": data.draw(GIVEN)}]
    histories, refused = [start], list[str]()
    for _ in range(data.draw(st.integers(1, 6), "calls")):
        history = list(data.draw(st.sampled_from(histories), "history"))
        action = data.draw(st.sampled_from(["continue"] * 4 + ["edit", "truncate", "subagent"]), "action")
        if action == "edit":
            place = data.draw(st.integers(0, len(history) - 1))
            history[place] = history[place] | {"content": "edited"}
        elif action == "truncate":
            history = [history[0], *history[3:]] if len(history) > 4 else history
        elif action == "subagent":
            history = [{"role": "user", "content": data.draw(GIVEN)}]
        try:
            asked = [program.ask(history) for _ in range(data.draw(st.integers(1, 2), "parallel"))]
        except Refusal as refusal:
            refused.append(refusal.message)
            continue
        for call, event, future in reversed(asked):
            reply = program.answer(call, event, future, *sampled_ids(name, data))
            histories.append([*history, as_sent(reply, data), *following(reply, data)])
    assert all("template does not accept" in message for message in refused)
    check(program)


@pytest.mark.parametrize("name", NAMES)
def test_plain_conversation_is_one_thread(name: str) -> None:
    session, encode = session_of(name), tokenizer(name)
    program = Program(name, session, [])
    history: list[dict[str, Any]] = [{"role": "user", "content": "Who directed Amberfall?"}]
    for turn in range(3):
        ids = [*encode(f"Ida Roth {turn}", add_special_tokens=False)["input_ids"], encode.eos_token_id]
        reply = program.answer(*program.ask(history), ids, False)
        history += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": "Sure?"}]
    check(program)
    [thread] = session.threads
    assert (thread.reason, len(thread.calls)) == ("new", 3)


@pytest.mark.parametrize("name", NAMES)
def test_each_given_token_is_tokenized_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of tokenizing is linear in the length of a session, however many calls it has."""
    session, encode, turns = session_of(name), tokenizer(name), 12
    program, counted = Program(name, session, []), list[int]()
    whole = session.template.encode

    def counting(text: str) -> list[int]:
        ids = whole(text)
        counted.append(len(ids))
        return ids

    monkeypatch.setattr(session.template, "encode", counting)
    history: list[dict[str, Any]] = [{"role": "user", "content": "Who directed Amberfall?"}]
    for turn in range(turns):
        ids = [*encode(f"Ida Roth {turn}", add_special_tokens=False)["input_ids"], encode.eos_token_id]
        reply = program.answer(*program.ask(history), ids, False)
        history += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": f"Sure of {turn}?"}]
    [trajectory] = session.trajectories()
    # The template's end of a reply, which the policy has sampled already, is encoded and left out.
    assert trajectory.agent_mask.count(0) <= sum(counted) <= trajectory.agent_mask.count(0) + turns


@pytest.mark.parametrize(("name", "kind"), [("qwen2_5", "hermes"), ("qwen3", "hermes"), ("llama3_1", "llama3")])
def test_tool_conversation_is_one_thread_whatever_the_layout_of_arguments(name: str, kind: str) -> None:
    session, encode = session_of(name), tokenizer(name)
    assert session.template.format is not None
    assert session.template.format.name == kind
    program = Program(name, session, TOOLS)
    history: list[dict[str, Any]] = [{"role": "user", "content": "Who directed Amberfall?"}]
    for spaced in (False, True, False):
        text = written_call(name, "Amberfall", spaced=spaced)
        ids = [*encode(text, add_special_tokens=False)["input_ids"], encode.eos_token_id]
        reply = program.answer(*program.ask(history), ids, False)
        [call] = reply.calls
        assert call.name == "find"
        assert call.arguments in text, "arguments are the model's own text"
        sent = {"role": "assistant", "content": None, "tool_calls": tool_calls(reply)}
        sent["tool_calls"][0]["function"]["arguments"] = '{"query":"Amberfall"}'
        history += [sent, {"role": "tool", "tool_call_id": call.id, "content": "Ida Roth"}]
    check(program)
    [thread] = session.threads
    assert len(thread.calls) == 3
    [one] = session.trajectories()
    [recorded] = one.turns[1].tool_calls
    assert (recorded.tool, recorded.arguments, recorded.text) == ("find", {"query": "Amberfall"}, "Ida Roth")


def test_qwen3_keeps_thoughts_before_tool_results_and_drops_them_before_a_user() -> None:
    name = "qwen3"
    session, encode = session_of(name), tokenizer(name)
    program = Program(name, session, TOOLS)
    history: list[dict[str, Any]] = [{"role": "user", "content": "Who directed Amberfall?"}]
    text = "<think>\nI search.\n</think>\n\n" + written_call(name, "Amberfall")
    ids = [*encode(text, add_special_tokens=False)["input_ids"], encode.eos_token_id]
    reply = program.answer(*program.ask(history), ids, False)
    history += [{"role": "assistant", "content": reply.content, "tool_calls": tool_calls(reply)}]
    history += [{"role": "tool", "tool_call_id": reply.calls[0].id, "content": "Ida Roth"}]
    text = "<think>\nFound.\n</think>\n\nIda Roth"
    ids = [*encode(text, add_special_tokens=False)["input_ids"], encode.eos_token_id]
    reply = program.answer(*program.ask(history), ids, False)
    history += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": "Sure?"}]
    program.answer(*program.ask(history), ids, False)
    check(program)
    assert [(thread.reason, len(thread.calls)) for thread in session.threads] in (
        [("new", 2), ("template", 1)],
        [("template", 1), ("new", 2)],
    )
