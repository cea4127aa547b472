"""The responses API, stateless: requests as messages, and replies as items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, StrictBool

from platform_sdk.gateway.messages import FunctionCall, Message
from platform_sdk.gateway.protocol import Content, Definition, text_of, validated
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.replies import CREATED, MODEL, event, pieces
from platform_sdk.gateway.threads import SampledCall

_EMPTY: dict[str, tuple[Any, ...]] = {
    "include": (None, []), "truncation": (None, "disabled"), "background": (None, False), "reasoning": (None, {}),
    "text": (None, {}, {"format": {"type": "text"}}), "previous_response_id": (None,), "conversation": (None,),
    "stream_options": (None, {}),
}  # fmt: skip
FIELDS = ("input", "instructions", "tools", "stream", *_EMPTY)


class _Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: str | None = None
    status: str | None = None


class _Said(_Item):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    phase: None = None


class _Called(_Item):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    namespace: None = None


class _Result(_Item):
    type: Literal["function_call_output"]
    call_id: str
    output: Content


_KINDS = {"message": _Said, "function_call": _Called, "function_call_output": _Result}


class _Tool(Definition):
    type: Literal["function"]


class _Request(BaseModel):
    input: list[dict[str, Any]]
    instructions: str | None = None
    tools: list[_Tool] | None = None
    stream: StrictBool | None = None


class ResponsesRequest:
    """Request of the responses API. An assistant's text and the calls after it are one message.

    Raises:
        Refusal: a field is malformed or has an unsupported value.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        for name, values in _EMPTY.items():
            if body.get(name) not in values:
                raise Refusal(400, f"unsupported value of {name}; leave it out", name, "unsupported_parameter")
        given = body.get("input")
        sent = {**body, "input": [{"role": "user", "content": given}] if isinstance(given, str) else given}
        request = validated(_Request, {name: sent.get(name) for name in _Request.model_fields})
        messages = [Message("system", request.instructions)] if request.instructions else []
        for place, item in enumerate(request.input):
            _add(messages, _item(item, f"input[{place}]"))
        if not messages:
            raise Refusal(400, "input must have at least one item", "input")
        self.messages = tuple(messages)
        self.tools = tuple(tool.for_template() for tool in request.tools or ())
        self.parse = body.get("tool_choice") != "none"
        self.stream = bool(request.stream)


def _item(item: dict[str, Any], name: str) -> _Said | _Called | _Result:
    kind = item.get("type", "message")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Refusal(400, f"{name}.type: unsupported value {kind!r:.40}; send {', '.join(_KINDS)}", f"{name}.type")
    checked: _Said | _Called | _Result = validated(_KINDS[kind], item, name)
    return checked


def _add(messages: list[Message], item: _Said | _Called | _Result) -> None:
    if isinstance(item, _Result):
        messages.append(Message("tool", text_of(item.output), (), item.call_id))
    elif isinstance(item, _Said):
        role = "system" if item.role == "developer" else item.role
        messages.append(Message(role, text_of(item.content)))
    else:
        call = FunctionCall(item.call_id, item.name, item.arguments)
        last = messages[-1] if messages else None
        if last is not None and last.role == "assistant":
            messages[-1] = Message("assistant", last.content, (*last.calls, call))
        else:
            messages.append(Message("assistant", "", (call,)))


def response(call: SampledCall, reply: Message, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply of the responses API."""
    output: list[dict[str, Any]] = []
    if reply.content or not reply.calls:
        part = {"type": "output_text", "text": reply.content, "annotations": []}
        said = {"type": "message", "id": f"msg_{call.id}", "role": "assistant", "status": "completed"}
        output.append(said | {"content": [part]})
    output += [
        {
            "type": "function_call", "id": f"fc_{each.id}", "call_id": each.id, "name": each.name,
            "arguments": each.arguments, "status": "completed",
        }
        for each in reply.calls
    ]  # fmt: skip
    assert call.completion is not None
    cut = call.completion.finish == "length"
    sampled = len(call.completion.token_ids)
    usage = {
        "input_tokens": len(call.token_ids), "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": sampled, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": call.length,
    }  # fmt: skip
    return {
        "id": f"resp_{call.id}", "object": "response", "created_at": CREATED, "model": MODEL, "output": output,
        "status": "incomplete" if cut else "completed", "error": None, "metadata": {},
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None, "usage": usage,
        "instructions": body.get("instructions"), "tools": body.get("tools") or [], "tool_choice": "auto",
        "parallel_tool_calls": True, "temperature": None, "top_p": None,
    }  # fmt: skip


def events(whole: dict[str, Any]) -> Iterator[str]:
    """Yield a response as server-sent events; joined, their parts are the whole response."""
    for number, (kind, fields) in enumerate(_events(whole)):
        yield event({"type": kind, "sequence_number": number, **fields}, kind)


def _events(whole: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = whole | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(whole["output"]):
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        added = {"output_index": index, "item": item | empty | {"status": "in_progress"}}
        yield "response.output_item.added", added
        where = {"item_id": item["id"], "output_index": index}
        yield from _said(item, where) if item["type"] == "message" else _called(item, where)
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield f"response.{whole['status']}", {"response": whole}


def _said(item: dict[str, Any], where: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, part in enumerate(item["content"]):
        at = where | {"content_index": number}
        yield "response.content_part.added", at | {"part": part | {"text": ""}}
        for text in pieces(part["text"]):
            yield "response.output_text.delta", at | {"delta": text, "logprobs": []}
        yield "response.output_text.done", at | {"text": part["text"], "logprobs": []}
        yield "response.content_part.done", at | {"part": part}


def _called(item: dict[str, Any], where: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for text in pieces(item["arguments"]):
        yield "response.function_call_arguments.delta", where | {"delta": text}
    yield "response.function_call_arguments.done", where | {"name": item["name"], "arguments": item["arguments"]}
