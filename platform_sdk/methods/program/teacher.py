"""A model at an OpenAI-compatible URL that answers the program in place of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

from platform_sdk.display import encodable
from platform_sdk.endpoints import open_client, reason, secret
from platform_sdk.errors import UserError
from platform_sdk.gateway.messages import FunctionCall, Message
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.threads import SampledCall
from platform_sdk.methods.program.settings import SessionsSpec
from platform_sdk.sampling.engine import SamplingParams

REFUSED = (400, 413, 422)
"""Statuses of requests that the teacher rejects, e.g. a prompt that is too long; the program gets the error."""


@dataclass(frozen=True)
class TaughtReply:
    """A reply of the teacher. ``cut``: it ended at the limit of tokens."""

    message: Message
    cut: bool


class Teacher:
    """Client of the teacher. Close it, or use it as a context manager."""

    def __init__(self, spec: SessionsSpec) -> None:
        self.spec = spec
        self._place = f"teacher {spec.model} at {spec.url}"
        key = secret(spec.api_key_env, self._place)
        self._client = open_client(self._place, spec.url, key, retries=spec.retries, timeout=spec.timeout)

    def replies(self, asked: Sequence[tuple[SampledCall, SamplingParams]]) -> list[TaughtReply | Refusal]:
        """Return the teacher's replies to calls; a refusal for each request that it rejects.

        Raises:
            UserError: the teacher cannot be reached, or its response is no chat completion.
        """
        with ThreadPoolExecutor(len(asked), thread_name_prefix="teacher") as pool:
            return list(pool.map(lambda each: self._reply(*each), asked))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reply(self, call: SampledCall, params: SamplingParams) -> TaughtReply | Refusal:
        from openai import APIStatusError, OpenAIError

        body: dict[str, Any] = {"model": self.spec.model, "messages": [_sent(message) for message in call.messages]}
        body |= {"max_tokens": self.spec.max_tokens or params.max_tokens}
        body |= {"temperature": self.spec.temperature} if self.spec.temperature is not None else {}
        body |= {"tools": list(call.tools)} if call.tools else {}
        body |= {"stop": list(call.stop)} if call.stop else {}
        try:
            response = self._client.chat.completions.create(**body)
            choice = response.choices[0]
            return TaughtReply(_message(choice.message), choice.finish_reason == "length")
        except OpenAIError as error:
            said = f"{self._place}: {reason(error, self._client)}"
            if isinstance(error, APIStatusError) and error.status_code in REFUSED:
                return Refusal(error.status_code, said)
            raise UserError(
                f"{said}. The same command resumes with the sessions so far; check the address, the model's name and "
                f"the key in {self.spec.api_key_env}"
            ) from None  # the original error may quote the key
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            raise UserError(f"{self._place}: the response is no chat completion; check the address") from error


def _sent(message: Message) -> dict[str, Any]:
    """Return a message as the OpenAI protocol has it, with arguments as JSON text."""
    sent = message.for_template()
    if message.calls:
        sent["content"] = message.content or None
        sent["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return sent


def _message(message: Any) -> Message:
    """Return the teacher's message, without characters that no file can hold."""
    calls = tuple(
        FunctionCall(call.id, call.function.name, call.function.arguments or "{}") for call in message.tool_calls or ()
    )
    return Message("assistant", encodable(message.content or ""), calls)
