"""The steps of every method: sample, select, evaluate, train online, score again.

Each step reads and writes the run directory, does nothing if its result for the same inputs exists, and resumes where a
killed one stopped.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.errors import UserError
from platform_sdk.evaluation import evaluator
from platform_sdk.evaluation.evaluator import ROLLOUTS, EvaluationResult
from platform_sdk.files import REMEDY, read_object
from platform_sdk.methods.decodings import evaluated_agent
from platform_sdk.methods.method import AnyMethod, RunContext, Sampling, SamplingStep
from platform_sdk.record_files import check_digest, digest_records, read_jsonl, write_jsonl, write_log
from platform_sdk.records import Rollout
from platform_sdk.run_dir import PhaseDir
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.pairs import models_of, policy_digest
from platform_sdk.sampling.sampler import RolloutAgent, RolloutSampler, open_sampler
from platform_sdk.tracking.outcomes import begin, finished, set_aside, write_json

if TYPE_CHECKING:
    from platform_sdk.training.online.loop import OnlineResult

EVALUATION = "evaluation"
"""Seed name of every evaluation, so that every model answers the same questions with the same seeds."""
CANDIDATES, SELECTED = PhaseDir.candidates, PhaseDir.selected
SAMPLE, FIGURES = PhaseDir.sample, PhaseDir.figures

AnyRun = RunContext[Any]
AnyStep = SamplingStep[Any, Any, Any]


@dataclass(frozen=True)
class SampleOutcome:
    """Rollouts of a phase: their file and digest, and the state for the next round."""

    path: Path
    digest: str
    carry: dict[str, Any]


@dataclass(frozen=True)
class SelectOutcome:
    """Rollouts selected from a phase: their file and digest, and the phase's figures."""

    path: Path
    digest: str
    figures: dict[str, Any]


def step_of(method: AnyMethod, name: str) -> AnyStep:
    """Return a method's own step.

    Raises:
        UserError: the method has no such step.
    """
    if name not in method.steps:
        raise UserError(f"step: {method.name} has no {name!r}; its steps: {', '.join(method.steps) or 'none'}")
    return method.steps[name]


def sample(
    method: AnyMethod,
    run: AnyRun,
    step: str,
    phase: str,
    iteration: int,
    model: str,
    settings: BaseModel,
    carry: BaseModel,
) -> SampleOutcome:
    """Sample a round of a method's own step into ``<phase>/rollouts.jsonl``.

    Raises:
        UserError: the phase's folder contains rollouts of other inputs; or see ``SamplingStep.sample``.
    """
    method.check_policy(run, model)
    folder = run.run_dir / phase
    inputs = run.inputs_digest(step, phase, iteration, policy_digest(model), settings, carry)
    done = finished(folder / SAMPLE, inputs)
    if done is None:
        begin(folder, inputs)
        sampled = step_of(method, step).sample(Sampling(run, phase, iteration, model, settings, carry))
        if not (folder / ROLLOUTS).exists():
            write_log(folder / ROLLOUTS, Rollout, [])  # the step only writes candidates
        if sampled.candidates is not None:
            write_jsonl(folder / CANDIDATES, Rollout, sampled.candidates)
        done = {
            "inputs": inputs,
            "iteration": iteration,
            "carry": sampled.carry.model_dump(mode="json"),
            "digest": digest_records(sampled.rollouts),
            "candidates": None if sampled.candidates is None else digest_records(sampled.candidates),
            "order": sampled.order,
            "figures": sampled.figures,
            "tokens_sampled": sum(sum(t.agent_mask) for r in sampled.rollouts for t in r.recorded),
            "sampling_seconds": round(sampled.seconds, 2),
        }
        write_json(folder / SAMPLE, done)
    return SampleOutcome(folder / ROLLOUTS, done["digest"], done["carry"])


def select(
    method: AnyMethod, run: AnyRun, step: str, phase: str, settings: BaseModel, carry: BaseModel
) -> SelectOutcome:
    """Check a sampled phase, select the rollouts to train on, and summarise the phase in ``figures.json``.

    Args:
        carry: the state that sampling this phase handed on.

    Raises:
        UserError: the phase has not been sampled, one of its files was altered, or a rollout's rewards differ from
            those computed again.
    """
    folder = run.run_dir / phase
    sampled = read_object(folder / SAMPLE)
    place = {id: i for i, id in enumerate(sampled["order"])}
    read = read_jsonl(folder / ROLLOUTS, Rollout)
    # Rollouts of other questions, which the digest reports, come last.
    rollouts = sorted(read, key=lambda r: (place.get(r.question.id, len(place)), r.attempt))
    if digest_records(rollouts) != sampled["digest"]:
        raise UserError(
            f"{folder / ROLLOUTS}: changed since sampling, its digest differs from the one in {SAMPLE}; {REMEDY}"
        )
    check_rewards(method, run, folder / ROLLOUTS, [rollout for rollout in rollouts if rollout.rewards])
    candidates: Sequence[Rollout] = rollouts
    if sampled["candidates"] is not None:
        check_digest(folder / CANDIDATES, Rollout, sampled["candidates"])
        candidates = list(read_jsonl(folder / CANDIDATES, Rollout))
    selected = step_of(method, step).select(settings, carry, rollouts, candidates)
    write_jsonl(folder / SELECTED, Rollout, selected.rollouts)
    well_formed = sum(rollout.malformed_turns == 0 for rollout in rollouts)
    figures = {
        "phase": phase,
        "iteration": sampled["iteration"],
        "questions": len(sampled["order"]),
        "rollouts": len(rollouts),
        "selected": len(selected.rollouts),
        "examples": sum(len(rollout.trajectories) for rollout in selected.rollouts),
        "well_formed": well_formed / len(rollouts) if rollouts else None,
        "tokens_sampled": sampled["tokens_sampled"],
        "sampling_seconds": sampled["sampling_seconds"],
        "sampled_per_second": round(sampled["tokens_sampled"] / max(sampled["sampling_seconds"], 0.01), 1),
        **sampled["figures"],
        **selected.figures,
    }
    write_json(folder / FIGURES, figures)
    return SelectOutcome(folder / SELECTED, digest_records(selected.rollouts), figures)


def evaluate(method: AnyMethod, run: AnyRun, phase: str, model: str, evaluation: EvaluationSpec) -> EvaluationResult:
    """Answer every evaluation question once, and write ``scores.json`` with 95 % bootstrap intervals."""
    method.check_policy(run, model)

    @contextmanager
    def open_evaluation() -> Iterator[RolloutSampler]:
        with method.resources(run) as resources:

            def make_agent(tokenizer: Any, weights: str) -> RolloutAgent:
                return evaluated_agent(method, run, Policy(tokenizer, weights), EVALUATION, resources, evaluation)

            path = run.run_dir / phase / ROLLOUTS
            with open_sampler(path, run.sampling.engine, model, make_agent) as opened:
                yield opened

    return _evaluate(method, run, phase, policy_digest(model), evaluation, open_evaluation)


def evaluated_before(method: AnyMethod, run: AnyRun, phase: str, model: str, evaluation: EvaluationSpec) -> bool:
    """Return whether another phase of the run already evaluated these weights in the same way."""
    outcome = run.run_dir / phase / evaluator.SCORES
    if not any(path != outcome for path in run.run_dir.glob(f"eval-*/{evaluator.SCORES}")):
        return False  # before the weights' digest is computed
    return evaluator.evaluated_before(outcome, run.inputs_digest(policy_digest(model), evaluation)) is not None


def online(
    method: AnyMethod, run: AnyRun, phase: str, model: str, spec: OnlineSpec, evaluation: EvaluationSpec
) -> OnlineResult:
    """Train ``model`` on rollouts of its own agent, into ``<phase>/model``.

    The method's credit assigns an advantage to each sampled token; observations are never trained on. Every
    ``spec.evaluate_every`` updates the evaluation questions are answered into ``eval-uNNNN``.

    Raises:
        UserError: the policy is a pair of models; or see ``train_online``.
    """
    from platform_sdk.training.online.groups import OnlineTask
    from platform_sdk.training.online.loop import train_online

    if models_of(model):
        raise UserError("online training trains one model, which plays all roles; leave worker_model out")
    live = run.sampling.engine.live
    with method.resources(run) as resources:

        def make_agent(tokenizer: Any, weights: str, seed_name: str) -> RolloutAgent:
            return method.agent(run, Policy(tokenizer, weights), seed_name, resources)

        def evaluate_between(update: int, engine: SamplingEngine) -> None:
            name, weights = f"eval-u{update:04d}", engine.weight_version
            policy = Policy(engine.tokenizer, weights)
            agent = evaluated_agent(method, run, policy, EVALUATION, resources, evaluation)
            opened = partial(
                RolloutSampler, run.run_dir / name / ROLLOUTS, agent, engine, live,
                searching=run.sampling.engine.searching,
            )  # fmt: skip
            # On a GPU a resumed run may reach slightly different weights than those evaluated before it was killed.
            set_aside(run.run_dir / name, run.inputs_digest(weights, evaluation))
            _evaluate(method, run, name, weights, evaluation, opened)

        task = OnlineTask(
            # Without updates there is no training, and an evaluation of other questions has no training questions.
            questions=method.questions(run, "train") if spec.updates else [],
            search=resources.search,
            make_agent=make_agent,
            live=live,
            credit=method.credit(run, spec),
            searching=run.sampling.engine.searching,
            temperature=run.sampling.temperature,
            stops=method.stops(run.agent),
            turn_tokens=method.turn_tokens(run.agent),
        )
        return train_online(
            spec,
            task,
            model,
            run.run_dir / phase / "model",
            engine=run.sampling.engine,
            seed=run.seed,
            folder=run.run_dir / phase,
            on_update=evaluate_between,
        )


def rescore(method: AnyMethod, run: AnyRun, phase: str) -> dict[str, float]:
    """Score a phase's recorded rollouts again, and compare the results with their recorded rewards.

    Returns:
        The mean of each reward over all rollouts of the phase, including those of all online updates; empty if no
        rollout was sampled (no updates).

    Raises:
        UserError: the rewards of a rollout differ, or the phase does not exist.
    """
    folder = run.run_dir / phase
    if not folder.exists():
        raise UserError(f"{folder}: this phase does not exist; run it first")
    found: dict[str, list[float]] = defaultdict(list)
    count = 0
    with method.resources(run) as resources:
        for file in sorted([*folder.glob(ROLLOUTS), *folder.glob("rollouts/*.jsonl")]):
            rollouts = list(read_jsonl(file, Rollout))
            for rollout, rewards in zip(rollouts, method.rescore(run, rollouts, resources), strict=True):
                _check_reward(file, rollout, rewards)
                for name, value in rewards.items():
                    found[name].append(value)
            count += len(rollouts)
    # Exactly rounded sums: a resumed run has its rollouts in another order.
    return {name: math.fsum(values) / count for name, values in found.items()}


def check_rewards(method: AnyMethod, run: AnyRun, path: Path, rollouts: Sequence[Rollout]) -> None:
    """Raise a UserError if the recorded rewards of a rollout in ``path`` differ from those computed again.

    A judge is not called again: its verdicts are only checked by ``rescore``.
    """
    for rollout in rollouts:
        _check_reward(path, rollout, method.rewards(run, rollout))


def _check_reward(path: Path, rollout: Rollout, rewards: Mapping[str, float]) -> None:
    if rollout.rewards != rewards:
        raise UserError(f"{path}: {rollout.id}: the recorded rewards differ from those computed again; {REMEDY}")


def _evaluate(
    method: AnyMethod,
    run: AnyRun,
    phase: str,
    weights: str,
    evaluation: EvaluationSpec,
    opened: Callable[[], AbstractContextManager[RolloutSampler]],
) -> EvaluationResult:
    def measures(rollouts: Sequence[Rollout]) -> Sequence[Mapping[str, float]]:
        check_rewards(method, run, run.run_dir / phase / ROLLOUTS, rollouts)
        return method.measure(run, rollouts, evaluation)

    return evaluator.evaluate(
        opened,
        method.questions(run, "eval"),
        measures,
        outcome=run.run_dir / phase / evaluator.SCORES,
        inputs=run.inputs_digest(weights, evaluation),
        seed=run.seed,
        shown=method.shown_metrics,
        greedy=evaluation.both,
    )
