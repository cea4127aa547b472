"""The documents that the base model for ProGraph-R1 learned from: of a faultless agent, and of one that errs."""

from __future__ import annotations

import itertools
import re
from collections import Counter

from examples.world_base.prograph_documents import (
    ERRS,
    FAULTLESS,
    Mistakes,
    PrographDocuments,
    prograph_world,
)
from examples.world_base.tokenizer import build_tokenizer
from platform_sdk.agents.planner_worker import Answer, Malformed
from platform_sdk.methods.mygo.prompts import Message
from platform_sdk.methods.prograph.grammar import Query, parse
from platform_sdk.methods.prograph.prompts import error
from platform_sdk.sampling.models import load_tokenizer, resolve

CLAIM = re.compile(r"The (\w+) of (\w+) is (\w+) \.")


def dialogues(mistakes: Mistakes, count: int) -> list[list[Message]]:
    documents = itertools.islice(PrographDocuments(seed=11, mistakes=mistakes), count)
    return [document for document in documents if not isinstance(document, str)]


def test_faultless_agent_keeps_the_grammar_and_claims_what_the_knowledge_says() -> None:
    claims = 0
    for _, _, *turns in dialogues(FAULTLESS, 300):
        said, told = turns[::2], turns[1::2]
        actions = [parse(turn["content"]) for turn in said]
        assert [type(action) for action in actions] == [Query] * (len(said) - 1) + [Answer]
        assert len(told) == len(said) - 1
        for shown, then in zip(told, said[1:], strict=True):
            lines = shown["content"].splitlines()
            assert (lines[0], lines[-1]) == ("<knowledge>", "</knowledge>")
            if "is not here" in then["content"]:
                continue
            claim = CLAIM.search(then["content"])
            assert claim is not None
            _, subject, value = claim.groups()
            found = any(subject in line and value in line for line in lines)
            claims += found
            # Where the needed sentence was missing twice, the agent guesses among what is there.
            assert found or any(value in line for line in lines)
    assert claims > 200


def test_erring_agent_breaks_the_grammar_at_its_rate_and_gets_the_reason() -> None:
    turns = Counter[bool]()
    for document in dialogues(ERRS, 1500):
        for message, reply in itertools.pairwise([*document[2:], {"role": "", "content": ""}]):
            if message["role"] != "assistant":
                continue
            said = parse(message["content"])
            turns[isinstance(said, Malformed)] += 1
            if isinstance(said, Malformed):
                assert reply["content"] == error(said.reason)
    share, count = turns[True] / turns.total(), turns.total()
    # 4.5 standard deviations of a share of ERRS.form among so many.
    assert abs(share - ERRS.form) < 4.5 * (ERRS.form * (1 - ERRS.form) / count) ** 0.5


def test_answer_of_the_faultless_agent_is_what_it_claimed_last() -> None:
    answers = Counter[bool]()
    for document in dialogues(FAULTLESS, 200):
        said = parse(document[-1]["content"])
        assert isinstance(said, Answer)
        comparison = said.text in ("yes", "no")
        answers[comparison] += 1
        claim = CLAIM.search(document[-1]["content"])
        assert comparison or (claim is not None and claim[3] == said.text)
    assert min(answers.values()) > 5


def test_questions_of_these_worlds_are_of_one_or_two_hops() -> None:
    assert {question.hops for seed in range(20) for question in prograph_world(seed).train} == {1, 2}


def test_equal_seeds_give_equal_documents() -> None:
    assert dialogues(ERRS, 40) == dialogues(ERRS, 40)


def test_the_shipped_model_is_small_and_its_tokenizer_that_of_the_base_model_with_some_words_more() -> None:
    folder = resolve("hopforge:world-base-prograph")
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 4_500_000
    for stage in ("prograph-reading", "prograph"):
        assert (folder / f"training-log-{stage}.jsonl").stat().st_size
    tokenizer = build_tokenizer(1024, "prograph")
    before, now = load_tokenizer("hopforge:world-base").get_vocab(), tokenizer.get_vocab()
    assert {word: now[word] for word in before} == before
    assert load_tokenizer("hopforge:world-base-prograph").get_vocab() == now
    text = "<think>I need the mother of Bobutan .</think><query>Who gave birth to Bobutan ?</query>"
    assert parse(tokenizer.decode(tokenizer(text)["input_ids"])) == Query("Who gave birth to Bobutan ?")
