"""Replies of the OpenAI protocol, whole and as streamed chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from platform_sdk.gateway.messages import Message
from platform_sdk.gateway.threads import SampledCall

MODEL = "policy"
CREATED = 0  # a constant, so that a repeated session gets the same replies


def usage(call: SampledCall) -> dict[str, int]:
    """Return the numbers of tokens of a call."""
    read, sampled = len(call.token_ids), call.length - len(call.token_ids)
    return {"prompt_tokens": read, "completion_tokens": sampled, "total_tokens": read + sampled}


def finish(call: SampledCall, reply: Message) -> str:
    """Return the reason why a reply ended."""
    assert call.completion is not None
    return "tool_calls" if reply.calls else call.completion.finish


def chat_completion(call: SampledCall, reply: Message, tokenizer: Any, *, logprobs: bool) -> dict[str, Any]:
    """Return the reply of chat completions."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content, "refusal": None}
    if reply.calls:
        message["content"] = reply.content or None
        message["tool_calls"] = tool_calls(reply)
    choice = {
        "index": 0, "message": message, "finish_reason": finish(call, reply),
        "logprobs": {"content": token_logprobs(call, tokenizer), "refusal": None} if logprobs else None,
    }  # fmt: skip
    return {
        "id": f"chatcmpl-{call.id}", "object": "chat.completion", "created": CREATED, "model": MODEL,
        "choices": [choice], "usage": usage(call),
    }  # fmt: skip


def text_completion(call: SampledCall, reply: Message) -> dict[str, Any]:
    """Return the reply of text completions."""
    choice = {"index": 0, "text": reply.content, "finish_reason": finish(call, reply), "logprobs": None}
    return {
        "id": f"cmpl-{call.id}", "object": "text_completion", "created": CREATED, "model": MODEL, "choices": [choice],
        "usage": usage(call),
    }  # fmt: skip


def text_chunks(whole: dict[str, Any], *, with_usage: bool) -> Iterator[str]:
    """Yield a text completion as server-sent events."""
    if with_usage:
        yield event(whole | {"usage": None})
        yield event(whole | {"choices": []})
    else:
        yield event({name: value for name, value in whole.items() if name != "usage"})
    yield "data: [DONE]\n\n"


def tool_calls(reply: Message) -> list[dict[str, Any]]:
    """Return a reply's calls of functions."""
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]


def token_logprobs(call: SampledCall, tokenizer: Any) -> list[dict[str, Any]]:
    """Return the log-probabilities of the sampled tokens; ``bytes`` is null for a part of a character."""
    assert call.completion is not None
    texts = [str(tokenizer.decode([id], skip_special_tokens=False)) for id in call.completion.token_ids]
    return [
        {
            "token": text, "logprob": value, "bytes": None if "\ufffd" in text else list(text.encode()),
            "top_logprobs": [],
        }
        for text, value in zip(texts, call.completion.logprobs, strict=True)
    ]  # fmt: skip


def chat_chunks(whole: dict[str, Any], *, with_usage: bool) -> Iterator[str]:
    """Yield a chat completion as server-sent events; joined, their parts are the whole reply."""
    [choice] = whole["choices"]
    message = choice["message"]
    head = {key: whole[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    if with_usage:
        head["usage"] = None

    def chunk(delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> str:
        one = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
        return event(head | {"choices": [one]})

    yield chunk({"role": "assistant", "content": ""}, logprobs=choice["logprobs"])
    for text in pieces(message["content"] or ""):
        yield chunk({"content": text})
    for index, call in enumerate(message.get("tool_calls", ())):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, choice["finish_reason"])
    if with_usage:
        yield event(head | {"choices": [], "usage": whole["usage"]})
    yield "data: [DONE]\n\n"


def pieces(text: str) -> Iterator[str]:
    """Yield a text in the pieces in which it is streamed."""
    for start in range(0, len(text), 64):
        yield text[start : start + 64]


def event(data: dict[str, Any], name: str | None = None) -> str:
    """Return one server-sent event."""
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
