"""Measures of each evaluated response: scores of the answer, its form, and its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from platform_sdk.config.judge import JudgeSpec
from platform_sdk.evaluation.answers import f1_score
from platform_sdk.recipes.arena.rewards import verdicts_on
from platform_sdk.recipes.arena.settings import AgentSpec
from platform_sdk.records import Rollout

PER_DATASET = ("em", "f1", "judge", "format", "relevance")


def measures(spec: AgentSpec, judge: JudgeSpec | None, rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
    """The metrics of all rollouts of an evaluation.

    Where the questions are of several datasets, each metric of ``PER_DATASET`` is also given by dataset, as
    ``em_hotpotqa``. A form without sections has no format, and without a relevance section neither relevance nor bonus.
    """
    found = [_measures(spec, rollout) for rollout in rollouts]
    if judge is not None:
        from platform_sdk.evaluation.judge import NO_VERDICT, Judge

        with Judge(judge) as opened:
            for values, verdict in zip(found, verdicts_on(rollouts, opened), strict=True):
                values["judge"] = float(verdict == "yes")
                values[NO_VERDICT] = float(verdict == "unparsable")
    if len({rollout.question.dataset for rollout in rollouts}) > 1:
        for rollout, values in zip(rollouts, found, strict=True):
            dataset = rollout.question.dataset
            values |= {f"{name}_{dataset}": values[name] for name in PER_DATASET if name in values}
    return found


def _measures(spec: AgentSpec, rollout: Rollout) -> dict[str, float]:
    question = rollout.question
    best = f1_score(rollout.main.answer, question.answers, question.dataset)  # type: ignore[arg-type]
    rewards = rollout.rewards
    formed = () if spec.form == "direct" else ("format",)
    traced = ("relevance", "bonus") if spec.form == "three_part" else ()
    return {
        "em": rewards["em"],
        "f1": best.f1,
        "prec": best.precision,
        "recall": best.recall,
        **{name: rewards[name] for name in (*formed, *traced, "reward", *spec.rewards.extra) if name in rewards},
        "answered": float(rollout.main.answer is not None),
        "tokens": float(sum(sum(t.agent_mask) for t in rollout.trajectories)),
    }
