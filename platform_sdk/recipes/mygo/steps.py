"""What the pipeline's components call: sample a phase, score and select, evaluate.

Each step reads and writes the run directory, does nothing when its result is there already for the same
inputs, and goes on where a killed one stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.evaluation import run
from platform_sdk.evaluation.run import Evaluated
from platform_sdk.files import REMEDY, read_object
from platform_sdk.recipes.mygo.agent import form_of, undemonstrated
from platform_sdk.recipes.mygo.measures import measures
from platform_sdk.recipes.mygo.rewards import rewards
from platform_sdk.recipes.mygo.sampling import batch_of, sample_iteration, sample_warmup, shuffled
from platform_sdk.recipes.mygo.selection import select
from platform_sdk.recipes.mygo.setting import Setting, mujica_of, open_mujica, open_search
from platform_sdk.recipes.mygo.settings import EvaluationSpec, SelectionSpec, WarmupSpec
from platform_sdk.record_files import digest_records, read_jsonl, write_jsonl
from platform_sdk.records import Rollout
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.pairs import models_of, policy_digest
from platform_sdk.sampling.phase import Phase
from platform_sdk.tracking.outcomes import begin, digest_of, finished, set_aside, write_json

if TYPE_CHECKING:
    from platform_sdk.training.online.loop import OnlineResult

__all__ = ["Setting", "evaluate", "online", "sample", "score"]

WARMUP = "warmup"
EVALUATION = "evaluation"
"""Names the seeds of every evaluation alike: the same questions are asked of every model with the same seeds."""
UNDEMONSTRATED = "undemonstrated.jsonl"
"""The warm-up's successes under the bare prompts: what is trained on."""


@dataclass(frozen=True)
class Sampled:
    """The outcome of a sampling step: where the rollouts are, their digest, and K for the next step."""

    path: Path
    digest: str
    threshold: float


@dataclass(frozen=True)
class Scored:
    """The outcome of a scoring step: the accepted rollouts, their digest, and the phase's figures."""

    path: Path
    digest: str
    figures: dict[str, Any]


def sample(
    setting: Setting,
    phase: str,
    iteration: int,
    model: str,
    threshold: float,
    selection: SelectionSpec,
    warmup: WarmupSpec,
) -> Sampled:
    """Sample the rollouts of the warm-up (``phase`` is ``warmup``) or of an iteration (from 1) of MyGO.

    Raises:
        UserError: the phase's folder holds rollouts of other weights or another corpus.
    """
    folder = setting.run_dir / phase
    inputs = digest_of(setting.inputs, phase, iteration, policy_digest(model), threshold, selection, warmup)
    path, outcome = folder / "rollouts.jsonl", folder / "sample.json"
    done = finished(outcome, inputs)
    if done is None:
        questions = setting.questions("train")
        if phase == WARMUP:
            questions = shuffled(questions, setting.seed, WARMUP)
        else:
            questions = batch_of(questions, iteration, selection.questions, setting.seed)
        begin(folder, inputs)
        make_agent = mujica_of(setting, setting.sampling, demonstrate=phase == WARMUP)
        with open_mujica(setting, path, phase, model, make_agent) as work:
            if phase == WARMUP:
                sample_warmup(work, questions, warmup)
                mean_reward = None
            else:
                mean_reward, threshold = sample_iteration(work, questions, threshold, selection)
            rollouts, tokenizer = work.ordered(questions), work.engine.tokenizer
        if phase == WARMUP:
            bare = partial(undemonstrated, tokenizer, setting.agent, form_of(setting.environment))
            write_jsonl(folder / UNDEMONSTRATED, Rollout, [bare(r) for r in rollouts if r.rewards["em"] == 1])
        done = {
            "inputs": inputs,
            "iteration": iteration,
            "mean_reward": mean_reward,
            "threshold": threshold,
            "digest": digest_records(rollouts),
            "order": [q.id for q in questions],
            "tokens_sampled": sum(sum(t.agent_mask) for r in rollouts for t in r.trajectories),
            "sampling_seconds": round(work.seconds, 2),
        }
        write_json(outcome, done)
    return Sampled(path, done["digest"], done["threshold"])


def score(run_dir: Path, phase: str, selection: SelectionSpec, warmup: WarmupSpec) -> Scored:
    """Score a sampled phase, select what is learned from, and sum the phase up in ``figures.json``.

    Raises:
        UserError: the phase has not been sampled, or a rollout's recorded rewards are not those of its answer.
    """
    folder = run_dir / phase
    sampled = read_object(folder / "sample.json")
    place = {id: i for i, id in enumerate(sampled["order"])}
    rollouts = sorted(read_jsonl(folder / "rollouts.jsonl", Rollout), key=lambda r: (place[r.question.id], r.attempt))
    if digest_records(rollouts) != sampled["digest"]:
        raise UserError(
            f"{folder / 'rollouts.jsonl'}: was changed after it was sampled; its digest is not sample.json's; {REMEDY}"
        )
    _check_rewards(folder / "rollouts.jsonl", rollouts)
    if phase == WARMUP:
        # In the order they were sampled in, so that the number asked for is reached as early as possible.
        rollouts.sort(key=lambda r: (r.attempt, place[r.question.id]))
        bare = {r.id: r for r in read_jsonl(folder / UNDEMONSTRATED, Rollout)}
        chosen = [bare[r.id] for r in select(rollouts, "em", 1.0, warmup.attempts)[: warmup.trajectories]]
        threshold, reward = 1.0, "em"
    else:
        threshold, reward = sampled["threshold"], selection.reward
        chosen = select(rollouts, reward, threshold, selection.accepted)
    path = folder / "selected.jsonl"
    write_jsonl(path, Rollout, chosen)
    accepted = sum(r.rewards[reward] >= threshold for r in rollouts)
    tried = Counter(r.question.id for r in rollouts)
    successful = {r.question.id for r in rollouts if r.rewards[reward] >= threshold}
    figures = {
        "phase": phase,
        "iteration": sampled["iteration"],
        "mean_reward": sampled["mean_reward"],
        "threshold": threshold,
        "rollouts": len(rollouts),
        "acceptance_rate": accepted / len(rollouts),
        "attempts_histogram": {str(n): count for n, count in sorted(Counter(tried.values()).items())},
        "questions": len(tried),
        "questions_without_accepted": len(tried) - len(successful),
        "wanted": warmup.trajectories if phase == WARMUP else None,
        "selected": len(chosen),
        "examples": sum(len(r.trajectories) for r in chosen),
        "well_formed": sum(r.rewards["well_formed"] for r in rollouts) / len(rollouts),
        "tokens_sampled": sampled["tokens_sampled"],
        "sampling_seconds": sampled["sampling_seconds"],
    }
    write_json(folder / "figures.json", figures)
    return Scored(path, digest_records(chosen), figures)


def evaluate(setting: Setting, phase: str, model: str, evaluation: EvaluationSpec) -> Evaluated:
    """Answer every evaluation question once, and write ``scores.json`` with 95 % bootstrap intervals."""
    path = setting.run_dir / phase / "rollouts.jsonl"
    make_agent = mujica_of(setting, evaluation.distribution, demonstrate=evaluation.demonstrate)
    opened = partial(open_mujica, setting, path, EVALUATION, model, make_agent)
    return _evaluate(setting, phase, policy_digest(model), evaluation, opened)


def online(setting: Setting, phase: str, model: str, spec: OnlineSpec, evaluation: EvaluationSpec) -> OnlineResult:
    """Train by GRPO on what the agent samples itself: the baseline that MyGO is compared with (Mujica-MyGO, section 4).

    The reward of a rollout is the planner's; its advantage goes to the agent's tokens in the planner's dialogue and in
    those of its workers. What the environment said is never trained on. Every ``spec.evaluate_every`` updates the
    evaluation questions are answered into ``eval-uNNNN``.

    Raises:
        UserError: the policy is a pair of models; or see ``train_online``.
    """
    from platform_sdk.training.credit import GroupAdvantage
    from platform_sdk.training.online.loop import train_online
    from platform_sdk.training.online.task import OnlineTask

    if models_of(model):
        raise UserError("GRPO trains one model, which plays both roles; leave worker_model out")
    folder, live = setting.run_dir / phase, setting.sampling.engine.live
    with open_search(setting) as search:

        def evaluate_between(update: int, engine: SamplingEngine) -> None:
            name, weights = f"eval-u{update:04d}", engine.weight_version
            make_agent = mujica_of(setting, evaluation.distribution, demonstrate=evaluation.demonstrate)
            agent = make_agent(engine.tokenizer, weights, EVALUATION)
            opened = partial(Phase, setting.run_dir / name / "rollouts.jsonl", agent, engine, search, live)
            # On a GPU a resumed run need not come to the very weights that were evaluated before it was killed.
            set_aside(setting.run_dir / name, _evaluation_inputs(setting, name, weights, evaluation))
            _evaluate(setting, name, weights, evaluation, opened)

        return train_online(
            spec,
            OnlineTask(
                setting.questions("train"),
                search,
                mujica_of(setting, setting.sampling),
                live,
                GroupAdvantage(spec.reward),
            ),
            model,
            folder / "model",
            engine=setting.sampling.engine,
            seed=setting.seed,
            folder=folder,
            on_update=evaluate_between,
        )


def _check_rewards(path: Path, rollouts: Sequence[Rollout]) -> None:
    for rollout in rollouts:
        if rollout.rewards != rewards(rollout):
            raise UserError(f"{path}: {rollout.id}: the recorded rewards are not those of its answer; {REMEDY}")


def _evaluate(
    setting: Setting,
    phase: str,
    weights: str,
    evaluation: EvaluationSpec,
    opened: Callable[[], AbstractContextManager[Phase]],
) -> Evaluated:
    def measured(rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
        _check_rewards(setting.run_dir / phase / "rollouts.jsonl", rollouts)
        return measures(form_of(setting.environment), rollouts)

    return run.evaluate(
        opened,
        setting.questions("eval"),
        measured,
        outcome=setting.run_dir / phase / run.SCORES,
        inputs=_evaluation_inputs(setting, phase, weights, evaluation),
        seed=setting.seed,
    )


def _evaluation_inputs(setting: Setting, phase: str, weights: str, evaluation: EvaluationSpec) -> str:
    return digest_of(setting.inputs, phase, weights, evaluation)
