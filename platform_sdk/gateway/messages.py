"""Messages of a request in one form, whatever protocol the program uses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FunctionCall:
    """Call of a program's function; ``arguments`` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str

    @property
    def values(self) -> Any:
        """Arguments as JSON values, or the text itself if it is no JSON."""
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError):
            return self.arguments


@dataclass(frozen=True)
class Message:
    """One message. ``calls`` belong to an assistant's message, ``call_id`` to the result of a call."""

    role: str
    content: str
    calls: tuple[FunctionCall, ...] = ()
    call_id: str = ""
    name: str = ""

    def for_template(self) -> dict[str, Any]:
        """Return the message as chat templates expect it, with arguments as a mapping."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.values}}
                for call in self.calls
            ]
        if self.call_id:
            message["tool_call_id"] = self.call_id
        if self.name:
            message["name"] = self.name
        return message

    def key(self) -> list[Any]:
        """Return JSON values that are equal for messages that mean the same: the layout of arguments is ignored."""
        calls = [[call.id, call.name, call.values] for call in self.calls]
        return [self.role, self.content, calls, self.call_id, self.name]


def digest(*parts: Any) -> str:
    """Return the digest of JSON values."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def prefix_digests(start: Any, messages: Sequence[Message]) -> list[str]:
    """Return the digest of each beginning of a conversation: entry ``n`` is the digest of its first ``n`` messages."""
    digests = [digest(start)]
    for message in messages:
        digests.append(digest(digests[-1], message.key()))
    return digests
