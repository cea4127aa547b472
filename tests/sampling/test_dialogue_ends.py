"""A turn ends with any of the tokens that the engine stops at, and the next one begins as the template says."""

from __future__ import annotations

import pytest

from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.engine import Completion
from platform_sdk.sampling.models import load_tokenizer

TOKENIZER = load_tokenizer("hopforge:world-base")
END = TOKENIZER.eos_token_id
OTHER = TOKENIZER.convert_tokens_to_ids("<|pad|>")  # as a generation config may name a second one
WORDS = tuple(TOKENIZER("Lena Roth", add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize(
    ("said", "finish", "heard", "told"),
    [
        ((*WORDS, END), "stop", "Lena Roth", ()),  # the policy closed its turn as the template does
        ((*WORDS, OTHER), "stop", "Lena Roth", (END,)),
        (WORDS, "length", "Lena Roth", (END,)),
        (WORDS, "stop", "Lena Roth", (END,)),  # at a stop string
        ((*WORDS, OTHER), "length", "Lena Roth <|pad|>", (END,)),  # no end: the turn is cut off there
        ((END,), "stop", "", ()),
    ],
)
def test_turn_ends_are_recorded_as_the_template_writes_them(
    said: tuple[int, ...], finish: str, heard: str, told: tuple[int, ...]
) -> None:
    dialogue = Dialogue(TOKENIZER, "Answer .", "Who wrote it ?")
    start = len(dialogue.token_ids)
    assert dialogue.hear(Completion("r", said, (-0.5,) * len(said), finish)) == heard  # type: ignore[arg-type]
    dialogue.tell("Go on .")
    opening = TOKENIZER("<|user|>Go on .<|end|><|assistant|>", add_special_tokens=False)["input_ids"]
    assert dialogue.token_ids[start:] == [*said, *told, *opening]
    assert dialogue.mask[start:] == [1] * len(said) + [0] * (len(told) + len(opening))
