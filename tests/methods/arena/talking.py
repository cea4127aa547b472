"""A policy that says what a test tells it to, and a tokenizer of single characters."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from platform_sdk.sampling.engine import Completion, PromptTooLong
from platform_sdk.sampling.rollout import Agent, Call, Gather, Generate

SPECIAL = ["<|unk|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def character_tokenizer() -> PreTrainedTokenizerFast:
    characters = [*SPECIAL, *string.printable, "…", "“", "”"]
    core = Tokenizer(models.WordLevel({text: i for i, text in enumerate(characters)}, unk_token="<|unk|>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<|unk|>", eos_token="<|end|>", additional_special_tokens=SPECIAL[2:]
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


class Script:
    """Drives an agent; ``says`` gives the text of a reply from its place and its prompt, or None for no room.

    A reply that ends in ``…cut`` is cut off there: it has no end-of-turn token.
    """

    def __init__(self, tokenizer: Any, says: Callable[[str, str], str | None]) -> None:
        self.tokenizer, self.says = tokenizer, says
        self.asked: list[Generate] = []

    def run(self, agent: Agent[Any]) -> Any:
        answer: Any = None
        while True:
            try:
                need = agent.throw(answer) if isinstance(answer, PromptTooLong) else agent.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = self._answer(need)

    def _answer(self, need: Any) -> Any:
        if isinstance(need, Gather):
            return [self.run(agent) for agent in need.agents]
        if isinstance(need, Call):
            return need.function(list(need.items))
        assert isinstance(need, Generate)
        self.asked.append(need)
        text = self.says(need.dialogue.partition("/")[2], self.tokenizer.decode(need.token_ids))
        if text is None:
            return PromptTooLong("no room")
        end = [] if text.endswith("…cut") else [self.tokenizer.eos_token_id]
        ids = (*self.tokenizer(text.removesuffix("…cut"), add_special_tokens=False)["input_ids"], *end)
        return Completion(need.dialogue, ids, tuple(-0.5 for _ in ids), "stop" if end else "length")
