"""Recall and false alarms of the search for near questions, on planted pairs; one half chooses the threshold.

    python -m benchmarks.overlap ../shared/data

The threshold is the smallest one at which at most 1 % of the evaluation questions without a planted pair are reported,
in the half that chooses. Natural pairs of the two sets count as false alarms.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from platform_sdk.lineage.overlap import KINDS, overlap_of, similarities
from platform_sdk.records import Question

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


def main(data: Path) -> None:
    """Choose the threshold on one half of the questions, and print recall and false alarms on the other."""
    texts = random.Random(0).sample(questions_of(data), len(questions_of(data)))
    middle = len(texts) // 2
    training, evaluation = plant(texts[:middle], 1)
    none = sorted(
        score
        for (kind, _), (_, score) in zip(evaluation, similarities(training, [t for _, t in evaluation]), strict=True)
        if kind == "none"
    )
    chosen = none[int(len(none) * (1 - ALARMS))]
    threshold = round(chosen + 0.005, 2)
    print(f"chosen on {len(evaluation)} evaluation questions against {len(training)}: {threshold}")
    training, evaluation = plant(texts[middle:], 2)
    began = time.perf_counter()
    result = overlap_of(*(_records(part) for part in (training, [text for _, text in evaluation])), threshold)
    print(f"compared {len(evaluation)} with {len(training)} questions in {time.perf_counter() - began:.1f} s")
    found = {int(pair.evaluation_id): pair for pair in result.pairs}
    for kind in (*KINDS_PLANTED, "none"):
        places = [place for place, (own, _) in enumerate(evaluation) if own == kind]
        hits = [found[place] for place in places if place in found]
        right = sum(pair.training == training[int(pair.evaluation_id)] for pair in hits) if kind != "none" else 0
        parts = ", ".join(f"{name} {sum(pair.kind == name for pair in hits)}" for name in KINDS)
        print(f"{kind}: {len(hits)} of {len(places)} reported, {right} with the planted pair ({parts})")
        for pair in hits[:3] if kind in ("paraphrase", "none") else []:
            print(f"  {pair.similarity} {pair.evaluation} | {pair.training}")


def _records(texts: Sequence[str]) -> list[Question]:
    return [Question(id=str(place), text=text, answers=("x",), dataset="planted") for place, text in enumerate(texts)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
