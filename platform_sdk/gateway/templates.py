"""A policy's chat template: rendering of prompts, and the text that it adds after a reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from platform_sdk.display import encodable, shortened
from platform_sdk.gateway.messages import FunctionCall, Message
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.tool_calls import FORMATS, ToolFormat
from platform_sdk.sampling.dialogue import continued, opened
from platform_sdk.sampling.engine import Completion
from platform_sdk.sampling.special_tokens import as_text, encode, special_tokens

_CLOSED, _OPENED = "</think>", "<think>"
_PROBE = Message("user", "-")
_REPLY = "\u0001reply\u0001"
_TOOL = {
    "type": "function",
    "function": {"name": "probe", "description": "-", "parameters": {"type": "object", "properties": {}}},
}


class ChatTemplate:
    """Chat template of a tokenizer. ``format`` is the form of its function calls; None if it has none."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.format = self._detected()

    def _detected(self) -> ToolFormat | None:
        call = FunctionCall("call_probe0", "probe", '{"query": "x"}')
        try:
            text = self.render([_PROBE, Message("assistant", "", (call,)), Message("tool", "-", (), call.id)], [_TOOL])
            if self.render([_PROBE], [_TOOL]) == self.render([_PROBE], []):
                return None
        except Refusal:
            return None
        return next((each for each in FORMATS if each.write([call]) in text), None)

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> str:
        """Return the text of a prompt, for ``encode``; special tokens that the messages or tools spell are text.

        Raises:
            Refusal: the template does not accept these messages.
        """
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    self._as_text([message.for_template() for message in messages]),
                    tools=self._as_text(list(tools)) or None, tokenize=False, add_generation_prompt=True,
                )
            )  # fmt: skip
        except Exception as error:  # a template raises errors of any kind
            reason = f"the policy's chat template does not accept these messages: {shortened(str(error), 300)}"
            raise Refusal(400, reason, "messages") from error

    def encode(self, text: str) -> list[int]:
        """Return a prompt's tokens."""
        return encode(self.tokenizer, text)

    def text(self, completion: Completion, prompt: str) -> str:
        """Return a reply's text without the end token, and with the thoughts' tag if the prompt opened it."""
        spoken = list(completion.token_ids)
        if self.ends(completion):
            spoken.pop()
        return opened(prompt) + str(self.tokenizer.decode(spoken, skip_special_tokens=False))

    def ends(self, completion: Completion) -> bool:
        """Return True if the reply's last token is an end token."""
        ids = completion.token_ids
        return completion.finish == "stop" and bool(ids) and ids[-1] in special_tokens(self.tokenizer)

    def recited(self, id: str, prompt: str, reply: Message, *, cut: bool) -> Completion:
        """Return a reply that no policy sampled, in the tokens that the policy would have written it with.

        Args:
            prompt: the text of the prompt.
            reply: text and calls of functions; the ids of the calls are not part of the text.
            cut: the reply is not whole, so it has no end token.
        """
        calls = self.format.write([self._call_as_text(call) for call in reply.calls]) if self.format else ""
        text = "\n".join(part for part in (self._as_text(reply.content), calls) if part)
        ids = self.encode(continued(opened(prompt), text)) + ([] if cut else [self.end])
        return Completion(id, tuple(ids), (0.0,) * len(ids), "length" if cut else "stop")

    def _as_text(self, values: Any) -> Any:
        """Return JSON values in which special tokens that a text spells are text, without lone surrogates."""
        if isinstance(values, str):
            return as_text(self.tokenizer, encodable(values))
        if isinstance(values, list):
            return [self._as_text(value) for value in values]
        if isinstance(values, dict):
            return {self._as_text(name): self._as_text(value) for name, value in values.items()}
        return values

    def _call_as_text(self, call: FunctionCall) -> FunctionCall:
        arguments = json.dumps(self._as_text(call.values), ensure_ascii=False)
        return replace(call, name=self._as_text(call.name), arguments=arguments)

    @cached_property
    def end(self) -> int:
        """Token with which the template ends a reply; the tokenizer's end token where it is no special token."""
        messages = [_PROBE, Message("assistant", _REPLY), _PROBE]
        after = self.render(messages, []).partition(_REPLY)[2]
        first = next(iter(self.encode(after)), None)
        return first if first in special_tokens(self.tokenizer) else int(self.tokenizer.eos_token_id)

    def joined(self, before: Sequence[int], suffix: str) -> tuple[int, ...]:
        """Return the tokens of ``suffix`` after ``before``, without an end token that ``before`` has already."""
        tokens = self.encode(suffix)
        if tokens and before and before[-1] == tokens[0] and tokens[0] in special_tokens(self.tokenizer):
            tokens = tokens[1:]
        return tuple(tokens)

    def placeholder(self, reply: Message) -> tuple[Message, tuple[str, ...]]:
        """Return a short reply of the same shape, and the texts that a policy would have sampled for it.

        The shape is everything that chat templates depend on: thoughts, text and calls.
        """
        thoughts = f"{_OPENED}\n-\n{_CLOSED}\n\n" if _CLOSED in reply.content else ""
        visible = "-" if reply.content.split(_CLOSED)[-1].strip() else ""
        calls = tuple(self._call_as_text(replace(call, arguments="{}")) for call in reply.calls)
        message = replace(reply, content=thoughts + visible, calls=calls)
        if not calls or self.format is None:
            return message, (thoughts + visible,)
        written = self.format.write(calls)
        if not thoughts + visible:
            return message, (written,)
        return message, (f"{thoughts}{visible}\n{written}", f"{thoughts}{visible}{written}")
