"""The documents that the base model for Search-R1's format learned from: of a faultless agent, and of one that errs."""

from __future__ import annotations

import itertools
from collections import Counter

from examples.world_base.documents import render
from examples.world_base.react_documents import ERRS, FAULTLESS, TOOLS, Mistakes, ReactDocuments
from examples.world_base.tokenizer import UNKNOWN, build_tokenizer
from platform_sdk.agents.planner_worker import Answer, Malformed
from platform_sdk.methods.mygo.prompts import Message
from platform_sdk.methods.react.grammar import parse_search_r1
from platform_sdk.methods.react.prompts import error
from platform_sdk.records import ToolCall
from platform_sdk.sampling.models import load_tokenizer


def dialogues(mistakes: Mistakes, count: int) -> list[list[Message]]:
    documents = itertools.islice(ReactDocuments(seed=11, mistakes=mistakes, style="search_r1"), count)
    return [document for document in documents if not isinstance(document, str)]


def test_faultless_agent_searches_then_answers_from_what_it_was_shown() -> None:
    hops = Counter[int]()
    for _, _, *turns in dialogues(FAULTLESS, 300):
        *calls, answer = [parse_search_r1(turn["content"], TOOLS) for turn in turns[::2]]
        told = [turn["content"] for turn in turns[1::2]]
        assert all(isinstance(call, ToolCall) and call.tool == "search" for call in calls)
        assert isinstance(answer, Answer)
        assert all(text.startswith("<information>\nDoc 1 (Title: ") for text in told)
        assert answer.text in ("yes", "no") or answer.text in " ".join(told).split()
        hops[len(calls)] += 1
    assert hops[1] > 50 < hops[2]


def test_erring_agent_breaks_the_format_at_its_rate_and_gets_the_error() -> None:
    turns = Counter[bool]()
    for document in dialogues(ERRS, 1500):
        for message, reply in itertools.pairwise([*document[2:], {"role": "", "content": ""}]):
            if message["role"] == "assistant":
                said = parse_search_r1(message["content"], TOOLS)
                turns[isinstance(said, Malformed)] += 1
                assert isinstance(said, Malformed) == (reply["content"] == error("search_r1", ""))
    n = turns.total()
    # 4.5 standard deviations of a share of ERRS.form among n turns.
    assert abs(turns[True] / n - ERRS.form) < 4.5 * (ERRS.form * (1 - ERRS.form) / n) ** 0.5


def test_shipped_tokenizer_has_the_words_of_the_format() -> None:
    shipped, made = load_tokenizer("hopforge:world-base-search-r1"), build_tokenizer(1024, "search_r1")
    assert shipped.get_vocab() == made.get_vocab()
    assert shipped.chat_template == made.chat_template
    for document in dialogues(ERRS, 50):
        text = render(document, lambda messages: str(shipped.apply_chat_template(messages, tokenize=False)))
        assert UNKNOWN not in shipped.convert_ids_to_tokens(shipped(text)["input_ids"])
