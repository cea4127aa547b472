"""Statistics of a synthesised set, and the page that shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from platform_sdk.recipes.evipath.checks import in_question
from platform_sdk.recipes.evipath.dialogues import Chat
from platform_sdk.recipes.evipath.records import Example
from platform_sdk.records import Rollout

BINS = 10
Table = tuple[str, tuple[str, ...], list[tuple[Any, ...]]]


def acceptance(examples: Sequence[Example], key: Callable[[Example], Any]) -> list[tuple[Any, ...]]:
    """Return for each value of ``key``: questions, kept ones, and their share in percent."""
    asked, kept = Counter(map(key, examples)), Counter(key(example) for example in examples if example.kept)
    return [(value, asked[value], kept[value], percent(kept[value], asked[value])) for value in sorted(asked, key=str)]


def reasons(examples: Sequence[Example]) -> list[tuple[Any, ...]]:
    """Return the reasons of rejections, the most frequent first, each with what was found in one case."""
    rejected = [example for example in examples if not example.kept]
    first = {example.rejected: example.detail for example in reversed(rejected)}
    counts = Counter(example.rejected for example in rejected).most_common()
    return [(reason, count, percent(count, len(examples)), first[reason]) for reason, count in counts]


def parallelism(kept: Iterable[Example]) -> list[tuple[Any, ...]]:
    """Return how many steps ask how many sub-questions at once."""
    sizes = Counter(len(step.asked) for example in kept for step in example.steps)
    return [(size, count, percent(count, sizes.total())) for size, count in sorted(sizes.items())]


def similarities(kept: Sequence[Example]) -> list[tuple[Any, ...]]:
    """Return the distribution of each sub-answer's best similarity to gold evidence, in tenths from 0 to 1."""
    best = [max(sub.similarities) for example in kept for sub in example.asked() if sub.similarities]
    bins = Counter(min(max(int(value * BINS), 0), BINS - 1) for value in best)
    return [(f"{place / BINS:.1f} to {(place + 1) / BINS:.1f}", bins[place], percent(bins[place], len(best)))
            for place in range(BINS)]  # fmt: skip


def lengths(rollouts: Iterable[Rollout]) -> list[tuple[Any, ...]]:
    """Return the dialogues' lengths in tokens, and how many of them are learned, by role."""
    found: dict[str, list[tuple[int, int]]] = {}
    for rollout in rollouts:
        for trajectory in rollout.trajectories:
            role = "executor" if trajectory.role == "worker" else trajectory.role
            found.setdefault(role, []).append((len(trajectory.token_ids), sum(trajectory.agent_mask)))
    rows = []
    for role, sizes in sorted(found.items()):
        whole = [size for size, _ in sizes]
        learned = round(mean(size for _, size in sizes), 1)
        rows.append((role, len(sizes), round(mean(whole), 1), median(whole), max(whole), learned))
    return rows


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def page(examples: Sequence[Example], rollouts: Iterable[Rollout], chats: Iterable[Chat]) -> str:
    """Return the statistics of a set as one HTML page.

    Args:
        examples: kept and rejected.
        rollouts: what is learned, for lengths in tokens.
        chats: dialogues to show.
    """
    kept = [example for example in examples if example.kept]
    share = ("questions", "kept", "share")
    tables: list[Table] = [
        ("Datasets", ("dataset", *share), acceptance(examples, lambda example: example.dataset)),
        ("Hops", ("hops", *share), acceptance(examples, lambda example: example.hops)),
        ("Reasons of rejections", ("check", "paths", "share", "e.g."), reasons(examples)),
        ("Steps", ("steps", "paths"), sorted(Counter(len(example.steps) for example in kept).items())),
        ("Sub-questions asked at once", ("sub-questions", "steps", "share"), parallelism(kept)),
        ("Tokens", ("role", "dialogues", "mean", "median", "maximum", "learned (mean)"), lengths(rollouts)),
        ("Best similarity of a sub-answer to gold evidence", ("similarity", "answers", "share"), similarities(kept)),
    ]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("statistics.html.j2").render(
        questions=len(examples), kept=len(kept), answer_in_question=sum(map(in_question, examples)),
        tables=tables, chats=list(chats),
    )  # fmt: skip
