"""Dialogues as token ids: examples as earlier turns, and the same words under another instruction."""

from __future__ import annotations

import pytest

from platform_sdk.sampling.dialogue import ChatTemplateError, Dialogue, with_instruction
from platform_sdk.sampling.engine import Completion
from platform_sdk.sampling.models import load_tokenizer
from tests.methods.arena.talking import character_tokenizer

TOKENIZER = load_tokenizer("hopforge:world-base")
EXAMPLE = ("Who directed Amberfall ?", "Ida Roth", "And who is the mother ?", "Lena Roth")


def speak(dialogue: Dialogue) -> Dialogue:
    said = (*TOKENIZER("Lena Roth", add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id)
    dialogue.hear(Completion("r", tuple(said), (-0.5,) * len(said), "stop"))
    dialogue.tell("Obs: go on")
    return dialogue


def test_worked_example_is_placed_before_the_first_message() -> None:
    dialogue = Dialogue(TOKENIZER, "Answer .", "Who wrote it ?", EXAMPLE)
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    texts = ("Answer .", *EXAMPLE, "Who wrote it ?")
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    rendered = TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert dialogue.token_ids == TOKENIZER(rendered, add_special_tokens=False)["input_ids"]
    # None of it is the agent's: nothing of an example is ever trained on.
    assert sum(dialogue.mask) == 0
    assert [(turn.speaker, turn.text) for turn in dialogue.turns] == [("environment", "Who wrote it ?")]


def test_changed_instruction_keeps_the_turns_and_drops_the_example() -> None:
    shown = speak(Dialogue(TOKENIZER, "Answer .", "Who wrote it ?", EXAMPLE)).trajectory("p", "planner")
    bare = speak(Dialogue(TOKENIZER, "Now alone .", "Who wrote it ?")).trajectory("p", "planner")
    assert with_instruction(shown, TOKENIZER, "Now alone .") == bare


def test_a_reopened_dialogue_continues_as_the_original_did() -> None:
    original = Dialogue(TOKENIZER, "Answer .", "Who wrote it ?", EXAMPLE)
    begun = original.trajectory("p", "planner")
    whole = speak(speak(original)).trajectory("p", "planner")
    opening, _, reply, *_ = whole.turns
    assert Dialogue.reopened(TOKENIZER, whole, opening.end).trajectory("p", "planner") == begun
    assert speak(Dialogue.reopened(TOKENIZER, whole, reply.end)).trajectory("p", "planner") == whole


def test_thoughts_that_the_chat_template_opens_belong_to_the_turns_text() -> None:
    dialogue = Dialogue(TOKENIZER, "Answer .", "Who wrote it ?")
    plain = Dialogue(TOKENIZER, "Answer .", "Who wrote it ?")
    opened = TOKENIZER("<think>", add_special_tokens=False)["input_ids"]
    dialogue.token_ids += opened
    dialogue.mask += [0] * len(opened)
    dialogue.logprobs += [0.0] * len(opened)
    said = tuple(TOKENIZER("Lena Roth", add_special_tokens=False)["input_ids"])
    completion = Completion("r", said, (-0.5,) * len(said), "length")
    assert dialogue.hear(completion) == "<think>" + plain.hear(completion)
    assert sum(dialogue.mask) == len(said), "the template's tag is not the policy's"


@pytest.mark.parametrize(
    ("recited", "text"),
    [
        ("<think>So.</think>x", "<think>So.</think>x"),
        ("So.</think>x", "<think>So.</think>x"),
        ("x", "<think></think>\n\nx"),
    ],
)
def test_recited_turn_continues_the_thoughts_that_the_chat_template_opens(recited: str, text: str) -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template += "{% if add_generation_prompt %}{{ '<think>' }}{% endif %}"
    dialogue = Dialogue(tokenizer, "Answer.", "Who?")
    for _ in range(2):
        dialogue.recite(recited)
        dialogue.tell("Go on.")
    assert [turn.text for turn in dialogue.trajectory("p", "planner").agent_turns] == [text, text]
    whole = tokenizer.decode(dialogue.token_ids)
    assert whole.count(f"<|assistant|>{text}<|end|><|user|>Go on.<|end|>") == 2


@pytest.mark.parametrize("template", ["{{ raise", "{{ nothing.at_all }}", "{# empty #}"])
def test_damaged_chat_template_is_one_error_that_names_the_tokenizer(template: str) -> None:
    tokenizer = load_tokenizer("hopforge:world-base")
    tokenizer.chat_template = template
    with pytest.raises(ChatTemplateError, match="the chat template of "):
        Dialogue(tokenizer, "Answer .", "Who wrote it ?")
