"""Recall and false alarms of the search for near questions, on planted pairs; one half chooses the thresholds.

    python -m benchmarks.overlap ../shared/data
    python -m benchmarks.overlap ../shared/data --real     # HotpotQA train against dev: counts, pairs, time, memory

A threshold is the smallest one at which its search alone reports at most 1 % of the evaluation questions without a
planted pair, in the half that chooses. Natural pairs of the two sets count as false alarms.
"""

from __future__ import annotations

import json
import random
import re
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from platform_sdk.lineage.overlap import (
    BY_CHARACTERS,
    BY_ENCODER,
    KINDS,
    Nearest,
    encoder_similarities,
    overlap_of,
    similarities,
)
from platform_sdk.records import Question
from platform_sdk.retrieval.load import shipped_encoder

PLANTED = 300
ALARMS = 0.01
WORDS = {
    "film": "movie", "movie": "film", "located": "situated", "which": "what", "born": "given birth to",
    "actor": "performer", "founded": "established", "released": "put out", "wrote": "authored", "country": "nation",
    "was": "has been", "is": "would be", "older": "the older one", "city": "town", "director": "filmmaker",
    "both": "each", "first": "earliest", "year": "calendar year", "song": "track", "company": "firm",
}  # fmt: skip


def paraphrase(text: str) -> str:
    """Replace up to three words by rule, and move a leading clause to the end."""
    words, replaced = text.rstrip("? ").split(), 0
    for place, word in enumerate(words):
        if replaced < 3 and (other := WORDS.get(word.lower())):
            words[place], replaced = other, replaced + 1
    head, comma, rest = " ".join(words).partition(", ")
    return f"{rest}, {head}?" if comma and rest else f"{head}, do you know?" if not replaced else f"{head}?"


KINDS_PLANTED: dict[str, Callable[[str], str]] = {
    "equal": str,
    "case": str.upper,
    "punctuation": lambda text: re.sub(r"[?,.]", " ;", text),
    "paraphrase": paraphrase,
}


def questions_of(data: Path) -> list[str]:
    """Return the distinct questions of HotpotQA and 2WikiMultihopQA in the shared data."""
    files = ("hotpotqa/hotpot_train.json", "hotpotqa/hotpot_dev.json", "hotpotqa/hotpot_dev_fullwiki_extra.json",
             "2wikimultihopqa/dev_questions_nocontext.json")  # fmt: skip
    return list(dict.fromkeys(one["question"] for name in files for one in json.loads((data / name).read_text())))


def plant(texts: Sequence[str], seed: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Return training texts, and evaluation texts with the kind of their planted pair; ``none`` without one."""
    mixed = random.Random(seed).sample(texts, len(texts))
    middle = len(mixed) // 2
    training, others = mixed[:middle], mixed[middle:]
    names = list(KINDS_PLANTED)
    planted = [(names[n % 4], KINDS_PLANTED[names[n % 4]](text)) for n, text in enumerate(training[: PLANTED // 2])]
    return training, [*planted, *(("none", text) for text in others)]


def choose(texts: Sequence[str]) -> dict[str, float]:
    """Return the thresholds of both searches, chosen on questions with planted pairs."""
    training, evaluation = plant(texts, 1)
    questions = [text for _, text in evaluation]
    found = {
        BY_CHARACTERS: similarities(training, questions),
        BY_ENCODER: encoder_similarities(training, questions, shipped_encoder()),
    }
    planted = [kind != "none" for kind, _ in evaluation]
    return {name: _threshold(nearest, planted) for name, nearest in found.items()}


def _threshold(nearest: Nearest, planted: Sequence[bool]) -> float:
    scores = sorted(score for (_, score), own in zip(nearest, planted, strict=True) if not own)
    return round(scores[int(len(scores) * (1 - ALARMS))] + 0.005, 2)


def report(texts: Sequence[str], thresholds: dict[str, float]) -> None:
    """Print recall and false alarms of each kind, on questions with planted pairs."""
    training, evaluation = plant(texts, 2)
    encode, began = shipped_encoder(), time.perf_counter()
    parts = (training, [text for _, text in evaluation])
    result = overlap_of(*map(_records, parts), encode=encode, thresholds=thresholds)
    print(f"compared {len(evaluation)} with {len(training)} questions in {time.perf_counter() - began:.1f} s")
    found = {int(pair.evaluation_id): pair for pair in result.pairs}
    for kind in (*KINDS_PLANTED, "none"):
        places = [place for place, (own, _) in enumerate(evaluation) if own == kind]
        hits = [found[place] for place in places if place in found]
        right = sum(pair.training == training[int(pair.evaluation_id)] for pair in hits) if kind != "none" else 0
        counts = ", ".join(f"{name} {sum(pair.kind == name for pair in hits)}" for name in KINDS)
        print(f"{kind}: {len(hits)} of {len(places)} reported, {right} with the planted pair ({counts})")
        for pair in hits[:5] if kind in ("paraphrase", "none") else []:
            print(f"  {pair.kind} {pair.similarity} {pair.evaluation} | {pair.training}")


def real(data: Path) -> None:
    """Print the overlap of HotpotQA's training and development questions, with ten pairs of each kind."""
    train, dev = (
        [_hotpot(one) for name in names for one in json.loads((data / "hotpotqa" / name).read_text())]
        for names in (("hotpot_train.json",), ("hotpot_dev.json", "hotpot_dev_fullwiki_extra.json"))
    )
    encode, began = shipped_encoder(), time.perf_counter()
    result = overlap_of(train, dev, encode=encode)
    seconds, memory = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{result.evaluation} dev questions against {result.training}: {seconds:.1f} s, {memory:.2f} GiB")
    print(f"gold evidence: all {result.gold_all}, some {result.gold_any} of {result.gold_known}")
    for kind in KINDS:
        print(f"{kind}: {result.count(kind)}")
        for pair in [pair for pair in result.pairs if pair.kind == kind][:10]:
            print(f"  {pair.similarity} {pair.evaluation} | {pair.training}")
    # What follows the reported pairs: the nearest ones below the thresholds.
    loose = overlap_of(train, dev, encode=encode, thresholds={BY_CHARACTERS: 0.0, BY_ENCODER: 0.0})
    print("nearest by characters, reported or not:")
    for pair in loose.pairs[:10]:
        print(f"  {pair.similarity} {pair.evaluation} | {pair.training}")
    nearest = encoder_similarities([one.text for one in train], [one.text for one in dev], encode)
    print("nearest by the encoder, reported or not:")
    for place in sorted(range(len(dev)), key=lambda place: -nearest[place][1])[:10]:
        print(f"  {nearest[place][1]:.3f} {dev[place].text} | {train[nearest[place][0]].text}")


def _hotpot(one: dict[str, Any]) -> Question:
    gold = tuple(dict.fromkeys(title for title, _ in one["supporting_facts"]))
    return Question(
        id=one["_id"], text=one["question"], answers=(one["answer"],), dataset="hotpotqa", gold_passages=gold
    )


def _records(texts: Sequence[str]) -> list[Question]:
    return [Question(id=str(place), text=text, answers=("x",), dataset="planted") for place, text in enumerate(texts)]


def main(data: Path) -> None:
    """Choose the thresholds on one half of the questions, and print recall and false alarms on the other."""
    texts = random.Random(0).sample(questions_of(data), len(questions_of(data)))
    middle = len(texts) // 2
    thresholds = choose(texts[:middle])
    print(f"chosen on {middle} questions: {thresholds}")
    report(texts[middle:], thresholds)


if __name__ == "__main__":
    (real if "--real" in sys.argv else main)(Path(sys.argv[1]))
