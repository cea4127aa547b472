"""Measures of each evaluated response: scores of the answer, its form, and its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from platform_sdk.config.judge import JudgeSpec
from platform_sdk.evaluation.answers import f1_score, spaced_exact_match, spaced_f1
from platform_sdk.methods.arena.grammar import parse
from platform_sdk.methods.arena.rewards import gold_numbers, items_of, response_of
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.records import Rollout

PER_DATASET = ("em", "f1", "judge", "arena_em", "arena_f1", "arena_judge", "format", "relevance")


def measures(spec: AgentSpec, judge: JudgeSpec | None, rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
    """Return the metrics of all rollouts of an evaluation.

    With questions from several datasets, each metric of ``PER_DATASET`` is also reported by dataset, as
    ``em_hotpotqa``. ``arena_em``, ``arena_f1`` and ``arena_judge`` are the paper's metrics: with its normaliser, and
    with its judge prompt, which contains the whole response instead of the parsed answer (appendix C.3). A form without
    sections has no format score, and a form without a relevance section has neither relevance nor bonus.
    ``evidence_precision`` is the share of the named passages that are gold (0 if none is named), ``evidence_recall``
    the share of the gold passages that are named; a question without gold passages has neither.
    """
    found = [_measures(spec, rollout) for rollout in rollouts]
    if judge is not None:
        from platform_sdk.config.judge import NO_VERDICT
        from platform_sdk.evaluation.judge import Judge

        with Judge(judge) as opened:
            for values, verdict in zip(found, opened.verdicts(items_of(rollouts)), strict=True):
                values["judge"] = float(verdict == "yes")
                values[NO_VERDICT] = float(verdict == "unparsable")
            whole = [
                (rollout.question.text, rollout.question.answers, response_of(rollout, spec)) for rollout in rollouts
            ]
            for values, verdict in zip(found, opened.verdicts(whole, papers=True), strict=True):
                values["arena_judge"] = float(verdict == "yes")
    if len({rollout.question.dataset for rollout in rollouts}) > 1:
        for rollout, values in zip(rollouts, found, strict=True):
            dataset = rollout.question.dataset
            values |= {f"{name}_{dataset}": values[name] for name in PER_DATASET if name in values}
    return found


def _measures(spec: AgentSpec, rollout: Rollout) -> dict[str, float]:
    question = rollout.question
    best = f1_score(rollout.main.answer, question.answers, question.dataset)
    rewards = rollout.rewards
    formed = () if spec.form == "direct" else ("format",)
    traced = ("relevance", "bonus") if spec.form == "three_part" else ()
    return {
        "em": rewards["em"],
        "f1": best.f1,
        "prec": best.precision,
        "recall": best.recall,
        "arena_em": spaced_exact_match(rollout.main.answer, question.answers),
        "arena_f1": spaced_f1(rollout.main.answer, question.answers),
        **{name: rewards[name] for name in (*formed, *traced, "reward", *spec.rewards.extra) if name in rewards},
        **_evidence(spec, rollout),
        "answered": float(rollout.main.answer is not None),
        "tokens": float(sum(sum(t.agent_mask) for t in rollout.trajectories)),
    }


def _evidence(spec: AgentSpec, rollout: Rollout) -> dict[str, float]:
    gold = gold_numbers(rollout.question)
    if spec.form != "three_part" or not gold:
        return {}
    named = parse(response_of(rollout, spec), spec.form).relevance or frozenset()
    right = len(named & gold)
    return {"evidence_precision": right / max(1, len(named)), "evidence_recall": right / len(gold)}
