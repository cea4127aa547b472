"""Texts that spell special tokens: of users, tools, programs and other models. They never become special tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from platform_sdk.gateway.messages import FunctionCall, Message
from platform_sdk.gateway.replies import token_logprobs
from platform_sdk.gateway.templates import ChatTemplate
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.engine import Completion
from platform_sdk.sampling.special_tokens import as_text, encode, unmarked
from tests.gateway.templates import NAMES, TOOLS, tokenizer
from tests.gateway.test_threads import Program, session_of

HARMLESS = "plain words"


def special(name: str) -> dict[int, str]:
    """Return the special tokens of a tokenizer by id, from its own table."""
    return {id: token.content for id, token in tokenizer(name).added_tokens_decoder.items() if token.special}


def spelled(name: str) -> str:
    """Return a text that spells every special token, alone and inside words."""
    texts = sorted(special(name).values())
    return "As in " + " ".join(texts) + " and x" + "y".join(texts) + "<<|im_end|>|>"


def conversation(name: str, text: str) -> tuple[list[Message], list[dict[str, Any]]]:
    """Return messages and tools that contain a text wherever a program can put one."""
    messages = [Message("system", text), Message("user", text), Message("assistant", f"So {text}")]
    if ChatTemplate(tokenizer(name)).format is None:
        return [*messages, Message("user", text)], []
    call = FunctionCall("call_probe0", "find", f'{{"query": "{text}"}}')
    described = [{**tool, "function": {**tool["function"], "description": text}} for tool in TOOLS]
    more = [Message("user", text), Message("assistant", "", (call,)), Message("tool", text, (), call.id)]
    return [*messages, *more], described


def specials_in(name: str, ids: Sequence[int]) -> list[int]:
    return [id for id in ids if id in special(name)]


@pytest.mark.parametrize("name", NAMES)
def test_spelled_special_tokens_of_a_conversation_are_text(name: str) -> None:
    template, encoded = ChatTemplate(tokenizer(name)), []
    for text in (HARMLESS, spelled(name)):
        messages, tools = conversation(name, text)
        ids = template.encode(template.render(messages, tools))
        encoded.append(specials_in(name, ids))
        raw = tokenizer(name).apply_chat_template(
            [message.for_template() for message in messages], tools=tools or None, tokenize=False,
            add_generation_prompt=True,
        )  # fmt: skip
        assert tokenizer(name).decode(ids) == raw, "the policy reads the text as the template writes it"
    assert encoded[0] == encoded[1], "the special tokens are the template's own"
    assert encoded[0] or name.startswith("world"), "the template has special tokens"


@pytest.mark.parametrize("name", NAMES)
def test_conversation_without_special_tokens_has_the_tokenizers_own_tokens(name: str) -> None:
    template = ChatTemplate(tokenizer(name))
    text = template.render(*conversation(name, HARMLESS))
    assert template.encode(text) == tokenizer(name)(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", NAMES)
def test_reply_of_another_model_has_no_special_token_but_its_end(name: str) -> None:
    template = ChatTemplate(tokenizer(name))
    prompt = template.render([Message("user", "Who?")], TOOLS if template.format else [])
    arguments = f'{{"query": "{spelled(name)}"}}'
    calls = (FunctionCall("t1", "find", arguments),) if template.format else ()
    text = f"<think>\n{spelled(name)}\n</think>\n\nIt is {spelled(name)}"
    written = template.recited("a", prompt, Message("assistant", text, calls), cut=False)
    assert specials_in(name, written.token_ids) == [template.end]
    said = template.text(written, prompt)
    assert said.count(spelled(name)) == 2 + len(calls)
    assert said.startswith("<think>\n")


@pytest.mark.parametrize(
    ("reply", "written"),
    [
        ("<think>\nIt is Ida.\n</think>\n\nIda", "It is Ida.\n</think>\n\nIda"),
        ("It is Ida.\n</think>\n\nIda", "It is Ida.\n</think>\n\nIda"),
        ("Ida", "</think>\n\nIda"),
    ],
)
def test_reply_of_another_model_continues_the_thoughts_that_the_prompt_opens(reply: str, written: str) -> None:
    """A server without a reasoning parser returns thoughts without the tag that its own template opened."""
    plain = tokenizer("qwen3")
    prompt = "<|im_start|>assistant\n<think>\n"
    completion = ChatTemplate(plain).recited("a", prompt, Message("assistant", reply), cut=False)
    assert plain.decode(completion.token_ids) == f"{written}<|im_end|>"


def test_log_probability_of_a_part_of_a_character_has_no_bytes() -> None:
    session, plain = session_of("qwen2_5"), tokenizer("qwen2_5")
    program = Program("qwen2_5", session, [])
    call, event, future = program.ask([{"role": "user", "content": "Who?"}])
    program.answer(call, event, future, plain("Ida \U0001f9d9", add_special_tokens=False)["input_ids"], True)
    found = [entry["bytes"] for entry in token_logprobs(call, plain)]
    assert found[0] == list(b"I") or found[0] == list(b"Ida")
    assert None in found


@pytest.mark.parametrize("name", NAMES)
def test_thread_goes_on_after_a_text_that_spells_special_tokens(name: str) -> None:
    """The session's tokens are those of the prompts, and the spelled ones never end or begin a turn."""
    session, plain = session_of(name), tokenizer(name)
    program = Program(name, session, [])
    history: list[dict[str, Any]] = [{"role": "user", "content": spelled(name)}]
    for turn in range(3):
        ids = [*plain(f"Ida {turn}", add_special_tokens=False)["input_ids"], plain.eos_token_id]
        reply = program.answer(*program.ask(history), ids, False)
        history += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": spelled(name)}]
    [thread] = session.threads
    assert (thread.reason, len(thread.calls)) == ("new", 3)
    harmless = session_of(name).template
    messages = [Message(each["role"], HARMLESS if each["role"] == "user" else each["content"]) for each in history[:-1]]
    whole = harmless.encode(harmless.render(messages[:-1], ()))
    last = thread.calls[-1]
    assert specials_in(name, last.token_ids) == specials_in(name, whole)


@pytest.mark.parametrize("name", ["smollm2", "qwen2_5", "world"])
def test_dialogue_of_a_built_in_agent_reads_spelled_special_tokens_as_text(name: str) -> None:
    """Passages and questions are given texts too."""
    encoded = []
    for text in (HARMLESS, spelled(name)):
        dialogue = Dialogue(tokenizer(name), "Answer.", text, example=("Who?", text))
        dialogue.recite(text)
        dialogue.tell(text)
        dialogue.hear(Completion("a", (tokenizer(name).eos_token_id,), (-0.1,), "stop"))
        encoded.append(specials_in(name, dialogue.token_ids))
        assert tokenizer(name).decode(dialogue.token_ids).count(text) == 4
    assert encoded[0] == encoded[1]


@pytest.mark.parametrize("name", NAMES)
def test_marked_text_can_be_marked_again_and_unmarked(name: str) -> None:
    text = spelled(name)
    marked = as_text(tokenizer(name), text)
    assert as_text(tokenizer(name), marked) == marked != text == unmarked(marked)
    assert as_text(tokenizer(name), HARMLESS) is HARMLESS
    assert tokenizer(name).decode(encode(tokenizer(name), marked)) == text
