"""Statistics of a synthesised set, for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median
from typing import Any

from platform_sdk.evaluation.phase_statistics import Dialogue, Message, Statistics, Table
from platform_sdk.methods.evipath import evidence
from platform_sdk.methods.evipath.checks import in_question
from platform_sdk.methods.evipath.dialogues import Chat
from platform_sdk.methods.evipath.records import Example
from platform_sdk.records import Rollout

BINS = 10
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
Rows = Sequence[tuple[Any, ...]]


def acceptance(examples: Sequence[Example], key: Callable[[Example], Any]) -> Rows:
    """Return the number of questions, of kept ones, and their share in percent, for each value of ``key``."""
    asked, kept = Counter(map(key, examples)), Counter(key(example) for example in examples if example.kept)
    return [(value, asked[value], kept[value], percent(kept[value], asked[value])) for value in sorted(asked, key=str)]


def reasons(examples: Sequence[Example]) -> Rows:
    """Return the reasons of rejections, the most frequent first, each with an example's finding."""
    rejected = [example for example in examples if not example.kept]
    first = {example.rejected: example.detail for example in reversed(rejected)}
    counts = Counter(example.rejected for example in rejected).most_common()
    return [(reason, count, percent(count, len(examples)), first[reason]) for reason, count in counts]


def parallelism(kept: Iterable[Example]) -> Rows:
    """Return the number of steps by their number of parallel sub-questions."""
    sizes = Counter(len(step.asked) for example in kept for step in example.steps)
    return [(size, count, percent(count, sizes.total())) for size, count in sorted(sizes.items())]


def similarities(kept: Sequence[Example]) -> Rows:
    """Return the distribution of each sub-answer's best similarity to gold evidence, in tenths from 0 to 1."""
    best = [max(sub.similarities) for example in kept for sub in example.asked() if sub.similarities]
    bins = Counter(min(max(int(value * BINS), 0), BINS - 1) for value in best)
    return [(f"{place / BINS:.1f} to {(place + 1) / BINS:.1f}", bins[place], percent(bins[place], len(best)))
            for place in range(BINS)]  # fmt: skip


def lengths(rollouts: Iterable[Rollout]) -> Rows:
    """Return the lengths of dialogues in tokens, and their learned tokens, by role."""
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


def thresholds(kept: Sequence[Example]) -> Rows:
    """Return for values of τ the sub-answers without evidence above it, and those with an unchanged selection.

    If the dataset gives the evidence of sub-questions, the second number shows how well τ selects it.
    """
    cases = [
        (asked.similarities, {example.gold.index(place) for place in places})
        for example in kept
        for asked in example.asked()
        # A searching agent may select evidence that is not gold, which was not selected by τ.
        if asked.similarities and (places := {asked.shown[index] for index in asked.selected}) <= set(example.gold)
    ]
    rows = []
    for tau in THRESHOLDS:
        none = sum(max(similarities) <= tau for similarities, _ in cases)
        same = sum(set(evidence.select(similarities, tau)) == selected for similarities, selected in cases)
        rows.append((tau, len(cases), percent(none, len(cases)), percent(same, len(cases))))
    return rows


def statistics(examples: Sequence[Example], rollouts: Iterable[Rollout], chats: Iterable[Chat]) -> Statistics:
    """Return the statistics of a set.

    Args:
        examples: kept and rejected examples.
        rollouts: training rollouts, for lengths in tokens.
        chats: dialogues to show.
    """
    kept = [example for example in examples if example.kept]
    share = ("questions", "kept", "share")
    tables: list[tuple[str, tuple[str, ...], Rows]] = [
        ("Datasets", ("dataset", *share), acceptance(examples, lambda example: example.dataset)),
        ("Hops", ("hops", *share), acceptance(examples, lambda example: example.hops)),
        ("Reasons of rejections", ("check", "paths", "share", "e.g."), reasons(examples)),
        ("Attempts", ("attempts", *share), acceptance(examples, lambda example: example.attempts)),
        ("Steps", ("steps", "paths"), sorted(Counter(len(example.steps) for example in kept).items())),
        ("Sub-questions asked at once", ("sub-questions", "steps", "share"), parallelism(kept)),
        ("Tokens", ("role", "dialogues", "mean", "median", "maximum", "learned (mean)"), lengths(rollouts)),
        ("Best similarity of a sub-answer to gold evidence", ("similarity", "answers", "share"), similarities(kept)),
        ("Other values of τ", ("τ", "answers", "no evidence above", "selects the same"), thresholds(kept)),
    ]
    named = sum(map(in_question, examples))
    return Statistics(
        title="Synthesised reasoning paths",
        summary=f"{len(kept)} of {len(examples)} questions have a path that passed every check; "
        f"{named} say their own answer.",
        tables=tuple(Table(title=title, head=head, rows=tuple(rows)) for title, head, rows in tables),
        dialogues=tuple(
            Dialogue(
                title=f"{chat.role}, {chat.id}",
                messages=tuple(Message.model_validate(message) for message in chat.messages),
            )
            for chat in chats
        ),
    )
