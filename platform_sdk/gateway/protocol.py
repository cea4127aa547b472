"""Requests of the OpenAI protocol: messages, functions and parameters, and refusals of unsupported ones by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictBool, ValidationError

from platform_sdk.gateway.messages import FunctionCall, Message
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.sampling.engine import SamplingParams

_NOTHING: tuple[Any, ...] = (None, [], {}, "", False, 0)
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1), "best_of": (None, 1), "logit_bias": (None, {}), "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0), "top_logprobs": (None, 0), "parallel_tool_calls": (None, True),
    "response_format": (None, {"type": "text"}), "modalities": (None, ["text"]), "audio": (None,), "store": _NOTHING,
    "service_tier": (None, "auto", "default"), "reasoning_effort": (None,), "prediction": (None,),
    "functions": (None, []), "function_call": (None,), "verbosity": (None,), "web_search_options": (None,),
    "tool_choice": (None, "auto", "none"), "echo": _NOTHING, "suffix": (None, ""), "logprobs": (None,),
}  # fmt: skip
"""Parameters that the gateway accepts only with values that have no effect on sampling. With ``tool_choice: none``,
calls of functions in a reply stay text."""
INERT = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
"""Parameters that change no token, except ``metadata.hopforge_turn`` (see ``turn_of``)."""
_SAMPLING = ("temperature", "top_p", "top_k")
_LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
OVERRIDDEN = frozenset({*_SAMPLING, *_LENGTHS, "seed", "model"})
"""Parameters that the recipe sets."""


class Part(BaseModel):
    """Part of a content; text only."""

    model_config = ConfigDict(extra="forbid")
    type: Literal["text", "input_text", "output_text", "refusal"]
    text: str = ""
    refusal: str = ""
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


# A union of text and list would name both in the errors of a malformed part.
Content = Annotated[
    list[Part], BeforeValidator(lambda value: [{"type": "text", "text": value}] if isinstance(value, str) else value)
]
_Texts = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class _Function(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    arguments: str


class _Call(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: str
    type: Literal["function"] = "function"
    function: _Function
    index: int | None = None


class _Message(BaseModel):
    """Message of a chat. The fields of an assistant's message that the gateway leaves empty must be empty."""

    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: list[Any] | None = None

    def message(self) -> Message:
        calls = tuple(
            FunctionCall(call.id, call.function.name, call.function.arguments) for call in self.tool_calls or ()
        )
        role = "system" if self.role == "developer" else self.role
        return Message(role, text_of(self.content), calls, self.tool_call_id or "", self.name or "")


class Definition(BaseModel):
    """Definition of a program's function."""

    model_config = ConfigDict(extra="forbid")
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def for_template(self) -> dict[str, Any]:
        """Return the definition as chat templates expect it."""
        empty = {"type": "object", "properties": {}}
        about = {"name": self.name, "description": self.description or ""}
        return {"type": "function", "function": {**about, "parameters": self.parameters or empty}}


class _Tool(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["function"]
    function: Definition


class _StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    include_usage: StrictBool | None = None
    include_obfuscation: StrictBool | None = None


class _Streamed(BaseModel):
    stream: StrictBool | None = None
    stream_options: _StreamOptions | None = None

    @property
    def with_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class _Chat(_Streamed):
    messages: list[_Message]
    tools: list[_Tool] | None = None
    stop: _Texts | None = None
    logprobs: StrictBool | None = None


CHAT_FIELDS = tuple(_Chat.model_fields)


def text_of(content: list[Part] | None) -> str:
    """Return a content as text."""
    return "".join(part.text or part.refusal for part in content or ())


class ChatRequest:
    """Request of chat completions.

    Raises:
        Refusal: a field is malformed.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        chat = validated(_Chat, {name: body.get(name) for name in CHAT_FIELDS})
        if not chat.messages:
            raise Refusal(400, "messages must have at least one message", "messages")
        self.messages = tuple(message.message() for message in chat.messages)
        self.tools = tuple(tool.function.for_template() for tool in chat.tools or ())
        self.stop = stops(chat.stop)
        self.parse = body.get("tool_choice") != "none"
        self.stream, self.with_usage, self.logprobs = bool(chat.stream), chat.with_usage, bool(chat.logprobs)


class _Text(_Streamed):
    prompt: Any
    stop: _Texts | None = None


TEXT_FIELDS = tuple(_Text.model_fields)


class TextRequest:
    """Request of text completions; the prompt is text or tokens, and may be the only one of a list.

    Raises:
        Refusal: a field is malformed, or there are several prompts.
    """

    def __init__(self, body: Mapping[str, Any], vocabulary: int) -> None:
        text = validated(_Text, {name: body.get(name) for name in TEXT_FIELDS})
        prompt = text.prompt
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            [prompt] = prompt
        if not isinstance(prompt, str) and not (isinstance(prompt, list) and all(type(id) is int for id in prompt)):
            raise Refusal(400, "prompt must be one text, or one list of token ids", "prompt")
        if not prompt:
            raise Refusal(400, "prompt must not be empty", "prompt")
        if not isinstance(prompt, str) and not all(0 <= id < vocabulary for id in prompt):
            raise Refusal(400, f"prompt: token ids must lie between 0 and {vocabulary - 1}", "prompt")
        self.prompt: str | list[int] = prompt
        self.stop = stops(text.stop)
        self.stream, self.with_usage = bool(text.stream), text.with_usage


def validated(model: type[Any], fields: Mapping[str, Any], parent: str = "") -> Any:
    """Return validated fields. ``parent``: name of the object that has the fields; empty for the request.

    Raises:
        Refusal: names the first malformed field.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in first["loc"])
        where = f"{parent}{path}".lstrip(".")
        reason = "Input should be an object" if first["type"] == "model_type" else first["msg"]
        raise Refusal(400, f"{where}: {reason}", where) from None


def stops(value: list[str] | None) -> tuple[str, ...]:
    """Return stop strings.

    Raises:
        Refusal: an empty stop string, or more than four.
    """
    texts = tuple(value or ())
    if any(not text for text in texts) or len(texts) > 4:
        raise Refusal(400, "stop must have at most 4 strings, none of them empty", "stop")
    return texts


def check_parameters(body: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse parameters that the gateway does not support. ``known``: fields of the endpoint itself.

    Raises:
        Refusal: 400 with the parameter's name.
    """
    allowed = {*known, *INERT, *OVERRIDDEN}
    for name, value in body.items():
        if name in allowed:
            continue
        if name not in NEUTRAL:
            raise Refusal(400, f"unsupported parameter: {name}", name, "unsupported_parameter")
        if not any(value == each and type(value) is type(each) for each in NEUTRAL[name]) and not (
            value == 0 and isinstance(value, float) and 0 in NEUTRAL[name]
        ):
            reason = f"unsupported value of {name}: {value!r}; leave it out"
            raise Refusal(400, reason[:300], name, "unsupported_parameter")


TURN = "hopforge_turn"
"""Key of ``metadata`` with the program's name for a call."""


def turn_of(body: Mapping[str, Any]) -> str | int | None:
    """Return the name that the program gives a call, from which its seed follows; None if it gives none.

    Raises:
        Refusal: the name is neither a text nor a number.
    """
    metadata = body.get("metadata")
    turn = metadata.get(TURN) if isinstance(metadata, Mapping) else None
    if turn is not None and (not isinstance(turn, str | int) or isinstance(turn, bool) or len(str(turn)) > 100):
        raise Refusal(400, f"metadata.{TURN} must be a text of at most 100 characters or a whole number", "metadata")
    return turn


def overridden(body: Mapping[str, Any], params: SamplingParams) -> list[str]:
    """Return a note for each parameter of the program that differs from the recipe's."""
    notes = []
    for name in (*_SAMPLING, *_LENGTHS):
        own = params.max_tokens if name in _LENGTHS else getattr(params, name)
        if body.get(name) is not None and body[name] != own:
            notes.append(f"{name}: the program sent {body[name]!r:.40}; the recipe's {own} was used")
    if body.get("seed") is not None:
        notes.append("seed: the program sent a seed; the session's was used")
    return notes
