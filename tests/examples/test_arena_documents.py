"""The documents that the base model for ARENA learned from: what a faultless agent and one that errs write."""

from __future__ import annotations

import itertools
import re
from collections import Counter

from examples.world_base.arena_documents import ERRS, FAULTLESS, ArenaDocuments, Mistakes, arena_world
from examples.world_base.tokenizer import build_tokenizer
from platform_sdk.methods.arena import grammar, prompts
from platform_sdk.sampling.models import load_tokenizer

TOKENIZER = load_tokenizer("hopforge:world-base-arena")


def dialogues(mistakes: Mistakes, count: int) -> list[tuple[str, str, str]]:
    """System message, question with passages, and reply of the first dialogues of a stream."""
    documents = itertools.islice(ArenaDocuments(seed=11, mistakes=mistakes), count)
    return [(d[0]["content"], d[1]["content"], d[2]["content"]) for d in documents if not isinstance(d, str)]


def test_the_faultless_agent_cites_what_it_claims_and_follows_the_form() -> None:
    forms = {prompts.instruction("compact", form): form for form in grammar.SECTIONS}
    seen: Counter[str] = Counter()
    for system, opening, reply in dialogues(FAULTLESS, 300):
        form = forms[system]
        seen[form] += 1
        assert grammar.well_formed(reply, form)
        response = grammar.parse(reply, form)
        assert response.answer
        if form != "three_part":
            continue
        passages = dict(re.findall(r"^\[(\d+)\] (\w+) :", opening, re.MULTILINE))
        assert response.reasoning is not None
        claims = re.findall(r"The (\w+) of (\w+) is (\w+) \[(\d+)\] \.", response.reasoning)
        assert all(passages[number] == subject for _, subject, _, number in claims)
        # Without fault every chosen passage is cited and every citation was chosen.
        assert response.relevance == frozenset(int(number) for *_, number in claims)
        if response.answer in ("yes", "no"):
            assert response.answer == ("yes" if claims[0][2] == claims[1][2] else "no")
        else:
            assert response.answer == claims[-1][2]
            assert [c[2] for c in claims[:-1]] == [c[1] for c in claims[1:]]
    assert min(seen.values()) > 10


def test_erring_agent_leaves_the_form_sometimes_but_not_always() -> None:
    replies = [reply for system, _, reply in dialogues(ERRS, 1500) if "relevance" in system]
    malformed = [reply for reply in replies if not grammar.well_formed(reply, "three_part")]
    # 4.5 standard deviations of a share of ERRS.form among so many.
    deviation = (ERRS.form * (1 - ERRS.form) / len(replies)) ** 0.5
    assert abs(len(malformed) / len(replies) - ERRS.form) < 4.5 * deviation
    parsed = [grammar.parse(reply, "three_part") for reply in malformed]
    assert all(any(getattr(p, part) is None for p in parsed) for part in ("relevance", "reasoning", "answer"))


def test_questions_of_these_worlds_are_of_one_or_two_hops_with_their_passages() -> None:
    for seed in range(20):
        for question in arena_world(seed).train:
            titles = [p.title for p in question.context]
            assert 3 <= len(titles) <= 5
            assert set(question.gold_passages) <= set(titles)
            assert question.hops in (1, 2)


def test_the_tokenizer_is_that_of_the_base_model_with_some_words_more() -> None:
    before, now = load_tokenizer("hopforge:world-base").get_vocab(), TOKENIZER.get_vocab()
    assert {word: now[word] for word in before} == before
    text = "<relevance>[1,3]</relevance><analysis>The mother of Bobutan is Rovenal [3] .</analysis><answer>yes</answer>"
    tokens = TOKENIZER.tokenize(text)
    assert tokens[:7] == ["<relevance>", "[", "1", ",", "3", "]", "</relevance>"]
    assert "[3]" in tokens
    read = TOKENIZER.decode(TOKENIZER(text)["input_ids"])
    assert grammar.well_formed(read, "three_part")
    assert grammar.parse(read, "three_part").relevance == frozenset((1, 3))


def test_equal_seeds_give_equal_documents() -> None:
    assert dialogues(ERRS, 40) == dialogues(ERRS, 40)


def test_the_shipped_model_is_small_and_knows_the_tokenizers_words() -> None:
    from platform_sdk.sampling.models import resolve

    folder = resolve("hopforge:world-base-arena")
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 4_500_000
    assert build_tokenizer(1024, "arena").get_vocab() == TOKENIZER.get_vocab()
    for stage in ("arena-reading", "arena"):
        assert (folder / f"training-log-{stage}.jsonl").stat().st_size
