"""A dialogue as token ids: sampled and given tokens are never decoded and tokenised again.

The chat template is rendered once to learn how it wraps a message of the environment. After that every turn is appended
as tokens, so training uses exactly the sampled tokens. Text that spells a special token stays text (see
``special_tokens``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from platform_sdk.display import shortened
from platform_sdk.errors import UserError
from platform_sdk.files import REMEDY
from platform_sdk.records import Evidence, RecordedCall, Trajectory, Turn, search_call
from platform_sdk.sampling.engine import Completion
from platform_sdk.sampling.special_tokens import as_text, encode, special_tokens

_THOUGHTS, _CLOSED = "<think>", "</think>"
_OPENED = 8  # number of a prompt's last tokens that are searched for it
_SAID, _TOLD = "\u0001said\u0001", "\u0001told\u0001"


class ChatTemplateError(UserError, ValueError):
    """The tokenizer's chat template cannot extend a dialogue turn by turn."""


class Dialogue:
    """One agent's dialogue with its environment.

    Args:
        tokenizer: a ``transformers`` tokenizer with a chat template.
        system: the instruction.
        opening: the environment's first message.
        example: earlier turns of a worked example: alternating texts of environment and agent.
        evidence: the evidence shown in the opening.
    """

    def __init__(
        self,
        tokenizer: Any,
        system: str,
        opening: str,
        example: Sequence[str] = (),
        evidence: Sequence[Evidence] = (),
    ) -> None:
        self.tokenizer = tokenizer
        self.token_ids: list[int] = _head(tokenizer, system, opening, example)
        self.mask: list[int] = [0] * len(self.token_ids)
        self.logprobs: list[float] = [0.0] * len(self.token_ids)
        self._recited = False
        self.turns: list[Turn] = [
            Turn(speaker="environment", text=opening, start=0, end=len(self.token_ids), evidence=tuple(evidence))
        ]

    @classmethod
    def reopened(cls, tokenizer: Any, trajectory: Trajectory, end: int) -> Dialogue:
        """Return a recorded dialogue as it was after its first ``end`` tokens, the end of a turn."""
        dialogue = cls.__new__(cls)
        dialogue.tokenizer, dialogue._recited = tokenizer, not trajectory.logprobs
        dialogue.token_ids, dialogue.mask = list(trajectory.token_ids[:end]), list(trajectory.agent_mask[:end])
        dialogue.logprobs = list(trajectory.logprobs[:end]) or [0.0] * end
        dialogue.turns = [turn for turn in trajectory.turns if turn.end <= end]
        return dialogue

    def hear(self, completion: Completion) -> str:
        """Append a sampled completion; return its text without the end token.

        If the chat template opens a reasoning model's thoughts, the text includes that tag.
        """
        start, thinking = len(self.token_ids), bool(self._opened())
        self.token_ids += completion.token_ids
        self.mask += [1] * len(completion.token_ids)
        self.logprobs += completion.logprobs
        spoken = list(completion.token_ids)
        # An engine stops at an end token or at the end of a stop string; a special token is never part of a string.
        if completion.finish == "stop" and spoken and spoken[-1] in special_tokens(self.tokenizer):
            spoken.pop()
        text = str(self.tokenizer.decode(spoken, skip_special_tokens=False))
        if thinking:
            text = _THOUGHTS + text
        self.turns.append(Turn(speaker="agent", text=text, start=start, end=len(self.token_ids)))
        return text

    def recite(self, text: str) -> None:
        """Append an agent turn that was not sampled; the dialogue then has no log-probabilities."""
        text = continued(self._opened(), text)
        said = (*encode(self.tokenizer, as_text(self.tokenizer, text)), self.tokenizer.eos_token_id)
        self.hear(Completion("recited", said, (0.0,) * len(said), "stop"))
        self._recited = True

    def _opened(self) -> str:
        """Return the tag with which the dialogue's text opens a reasoning model's thoughts (see ``opened``)."""
        return opened(str(self.tokenizer.decode(self.token_ids[-_OPENED:], skip_special_tokens=False)))

    def note_malformed(self, reason: str) -> None:
        """Mark the agent's last turn as malformed."""
        self._note(malformed=reason)

    def note_asked(self, queries: Sequence[str] = (), calls: Sequence[str] = ()) -> None:
        """Record the queries of the agent's last turn, and the ids of the trajectories that it called."""
        self._note(tool_calls=tuple(map(search_call, queries)), calls=tuple(calls))

    def note_tool_calls(self, calls: Sequence[RecordedCall]) -> None:
        """Record the tool calls of the agent's last turn, with their results."""
        self._note(tool_calls=tuple(calls))

    def note_rewards(self, rewards: Mapping[str, float]) -> None:
        """Record the named rewards of the agent's last turn."""
        self._note(rewards=dict(rewards))

    def _note(self, **update: Any) -> None:
        place = max(place for place, turn in enumerate(self.turns) if turn.speaker == "agent")
        self.turns[place] = self.turns[place].model_copy(update=update)

    def tell(self, text: str, evidence: Sequence[Evidence] = ()) -> None:
        """Append a message of the environment, which shows ``evidence``, and the opening of the agent's next turn."""
        before, after = _wrapping(self.tokenizer)
        tokens = encode(self.tokenizer, before + as_text(self.tokenizer, text) + after)
        # The template closes the agent's turn; if the policy sampled the same end token, it is not added again. After
        # another end token the template's is added, so the next turn always begins in the same way.
        if self.token_ids[-1] == tokens[0] and tokens[0] in special_tokens(self.tokenizer):
            tokens = tokens[1:]
        start = len(self.token_ids)
        self.token_ids += tokens
        self.mask += [0] * len(tokens)
        self.logprobs += [0.0] * len(tokens)
        end = len(self.token_ids)
        self.turns.append(Turn(speaker="environment", text=text, start=start, end=end, evidence=tuple(evidence)))

    def trajectory(
        self,
        id: str,
        role: str,
        *,
        selected: tuple[int, ...] = (),
        answer: str | None = None,
    ) -> Trajectory:
        return Trajectory(
            id=id,
            role=role,
            token_ids=tuple(self.token_ids),
            agent_mask=tuple(self.mask),
            logprobs=() if self._recited else tuple(self.logprobs),
            turns=tuple(self.turns),
            selected=selected,
            answer=answer,
        )


def opened(prompt: str) -> str:
    """Return the tag of thoughts at the end of a prompt, with the blanks after it; empty if there is none."""
    bare = prompt.rstrip()
    return prompt[len(bare) - len(_THOUGHTS) :] if bare.endswith(_THOUGHTS) else ""


def continued(tag: str, text: str) -> str:
    """Return a reply that was not sampled as the continuation of a prompt with the tag ``opened(prompt)``.

    A server without a reasoning parser returns only the end of the thoughts' tag if its template opens it.
    """
    if not tag:
        return text
    if text.startswith(_THOUGHTS):
        return text.removeprefix(tag if text.startswith(tag) else _THOUGHTS)
    return text if _CLOSED in text else f"{_CLOSED}\n\n{text}"


def with_instruction(trajectory: Trajectory, tokenizer: Any, system: str) -> Trajectory:
    """Return the dialogue with another instruction and without examples; all turns keep their tokens.

    The log-probabilities remain the ones under the original instruction.
    """
    opening, *rest = trajectory.turns
    head = _head(tokenizer, system, opening.text)
    cut, shift = opening.end, len(head) - opening.end
    turns = [opening.model_copy(update={"end": len(head)})]
    turns += [t.model_copy(update={"start": t.start + shift, "end": t.end + shift}) for t in rest]
    return trajectory.model_copy(
        update={
            "token_ids": (*head, *trajectory.token_ids[cut:]),
            "agent_mask": (0,) * len(head) + trajectory.agent_mask[cut:],
            "logprobs": (0.0,) * len(head) + trajectory.logprobs[cut:],
            "turns": tuple(turns),
        }
    )


def _head(tokenizer: Any, system: str, opening: str, example: Sequence[str] = ()) -> list[int]:
    shown = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(example)]
    messages = [{"role": "system", "content": system}, *shown, {"role": "user", "content": opening}]
    given = [message | {"content": as_text(tokenizer, message["content"])} for message in messages]
    return encode(tokenizer, _rendered(tokenizer, given))


def _rendered(tokenizer: Any, messages: Sequence[dict[str, str]]) -> str:
    """Return the prompt of a dialogue.

    Raises:
        ChatTemplateError: the model has no chat template, or a faulty one.
    """
    try:
        text = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a missing template raises ValueError, a damaged one any error of Jinja
        raise ChatTemplateError(
            f"the chat template of {tokenizer.name_or_path} cannot be applied ({shortened(str(error), 300)}); {REMEDY}"
        ) from error
    if not text:
        raise ChatTemplateError(f"the chat template of {tokenizer.name_or_path} gives an empty prompt; {REMEDY}")
    return text


@lru_cache(maxsize=8)
def _wrapping(tokenizer: Any) -> tuple[str, str]:
    """Return the chat template's text between the agent's and the environment's text, and after it."""
    messages = [
        {"role": "user", "content": "-"},
        {"role": "assistant", "content": _SAID},
        {"role": "user", "content": _TOLD},
    ]
    text = _rendered(tokenizer, messages)
    _, said, rest = text.partition(_SAID)
    before, told, after = rest.partition(_TOLD)
    if not said or not told:
        raise ChatTemplateError(
            f"the chat template of {tokenizer.name_or_path} rewrites earlier messages, so that a dialogue "
            "cannot be extended by tokens; use a model whose template keeps them"
        )
    return before, after
