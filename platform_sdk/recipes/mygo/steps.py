"""What the pipeline's components call: sample a phase, score and select, evaluate.

Each step reads and writes the run directory, does nothing when its result is there already for the same
inputs, and goes on where a killed one stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.evaluation.answers import f1_score
from platform_sdk.evaluation.intervals import bootstrap_intervals
from platform_sdk.recipes.mygo.agent import Mujica, form_of
from platform_sdk.recipes.mygo.rewards import rewards
from platform_sdk.recipes.mygo.sampling import Phase, batch_of, sample_iteration, sample_warmup, shuffled
from platform_sdk.recipes.mygo.selection import select
from platform_sdk.recipes.mygo.settings import AgentSpec, EvaluationSpec, SamplingSpec, SelectionSpec, WarmupSpec
from platform_sdk.records import Question, Rollout, digest_records, read_jsonl, write_jsonl

WARMUP = "warmup"
UNDEMONSTRATED = "undemonstrated.jsonl"
"""The warm-up's successes under the bare prompts: what is trained on."""


@dataclass(frozen=True)
class Setting:
    """What all sampling steps of a run share; the digests are those of the data that the run began with."""

    run_dir: Path
    environment: str
    agent: AgentSpec
    sampling: SamplingSpec
    retrieval: RetrievalSpec
    corpus_digest: str
    seed: int

    @classmethod
    def read(
        cls,
        run_dir: Path,
        environment: str,
        agent: Mapping[str, Any],
        sampling: Mapping[str, Any],
        retrieval: Mapping[str, Any],
        corpus_digest: str,
        seed: int,
    ) -> Self:
        """The setting from a recipe's plain structs, validated."""
        return cls(
            run_dir,
            environment,
            AgentSpec.model_validate(agent),
            SamplingSpec.model_validate(sampling),
            RetrievalSpec.model_validate(retrieval),
            corpus_digest,
            seed,
        )


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


@dataclass(frozen=True)
class Evaluated:
    """The outcome of an evaluation: ``scores.json``, its digest, and the metrics' values."""

    path: Path
    digest: str
    metrics: dict[str, float]


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
    inputs = _digest(setting, phase, iteration, _weights_digest(model), threshold, selection, warmup)
    path, outcome = folder / "rollouts.jsonl", folder / "sample.json"
    done = _finished(outcome, inputs)
    if done is None:
        questions = _questions(setting, "train")
        if phase == WARMUP:
            questions = shuffled(questions, setting.seed, WARMUP)
        else:
            questions = batch_of(questions, iteration, selection.questions, setting.seed)
        _begin(folder, inputs)
        began = time.monotonic()
        with _open_phase(setting, path, phase, model, demonstrate=phase == WARMUP, evaluation=None) as work:
            if phase == WARMUP:
                sample_warmup(work, questions, warmup)
                mean_reward = None
            else:
                mean_reward, threshold = sample_iteration(work, questions, threshold, selection)
            rollouts = work.ordered(questions)
            if phase == WARMUP:
                successes = [work.agent.undemonstrated(r) for r in rollouts if r.rewards["em"] == 1]
                write_jsonl(folder / UNDEMONSTRATED, Rollout, successes)
        done = {
            "inputs": inputs,
            "iteration": iteration,
            "mean_reward": mean_reward,
            "threshold": threshold,
            "digest": digest_records(rollouts),
            "order": [q.id for q in questions],
            "tokens_sampled": sum(sum(t.agent_mask) for r in rollouts for t in r.trajectories),
            "sampling_seconds": round(time.monotonic() - began, 2),
        }
        _write_json(outcome, done)
    return Sampled(path, done["digest"], done["threshold"])


def score(run_dir: Path, phase: str, selection: SelectionSpec, warmup: WarmupSpec) -> Scored:
    """Score a sampled phase, select what is learned from, and sum the phase up in ``figures.json``.

    Raises:
        UserError: the phase has not been sampled, or a rollout's recorded rewards are not those of its answer.
    """
    folder = run_dir / phase
    sampled = _read_json(folder / "sample.json")
    place = {id: i for i, id in enumerate(sampled["order"])}
    rollouts = sorted(read_jsonl(folder / "rollouts.jsonl", Rollout), key=lambda r: (place[r.question.id], r.attempt))
    if digest_records(rollouts) != sampled["digest"]:
        raise UserError(
            f"{folder / 'rollouts.jsonl'}: was changed after it was sampled; its digest is not sample.json's"
        )
    for rollout in rollouts:
        if rollout.rewards != rewards(rollout):
            raise UserError(
                f"{folder / 'rollouts.jsonl'}: {rollout.id}: the recorded rewards are not those of its answer"
            )
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
    _write_json(folder / "figures.json", figures)
    return Scored(path, digest_records(chosen), figures)


def evaluate(setting: Setting, phase: str, model: str, evaluation: EvaluationSpec) -> Evaluated:
    """Answer every evaluation question once, and write ``scores.json`` with 95 % bootstrap intervals."""
    folder = setting.run_dir / phase
    inputs = _digest(setting, phase, _weights_digest(model), evaluation)
    outcome = folder / "scores.json"
    scores = _finished(outcome, inputs)
    if scores is None:
        questions = _questions(setting, "eval")
        _begin(folder, inputs)
        with _open_phase(
            setting, folder / "rollouts.jsonl", phase, model, demonstrate=evaluation.demonstrate, evaluation=evaluation
        ) as work:
            work.once(questions, 0, phase)
            rollouts = [work.done[q.id][0] for q in questions]
        per_question = {rollout.question.id: measures(rollout) for rollout in rollouts}
        columns = {name: [values[name] for values in per_question.values()] for name in measures(rollouts[0])}
        intervals = bootstrap_intervals(columns, seed=setting.seed)
        scores = {
            "inputs": inputs,
            "phase": phase,
            "n": len(rollouts),
            "metrics": {
                name: {"value": sum(values) / len(values), "low": intervals[name][0], "high": intervals[name][1]}
                for name, values in columns.items()
            },
            "per_question": per_question,
        }
        _write_json(outcome, scores)
    values = {name: metric["value"] for name, metric in scores["metrics"].items()}
    return Evaluated(outcome, hashlib.sha256(outcome.read_bytes()).hexdigest(), values)


def measures(rollout: Rollout) -> dict[str, float]:
    """What an evaluation reports of one rollout: the answer's scores, and how it came about."""
    question = rollout.question
    best = f1_score(rollout.planner.answer, question.answers, question.dataset)  # type: ignore[arg-type]
    searched = rollout.workers or (rollout.planner,)
    seen = {item.title if item.kind == "passage" else item.text for t in searched for item in t.evidence}
    gold = set(question.gold_passages) or {t.text for t in question.gold_triples}
    if any(item.kind == "triple" for t in searched for item in t.evidence):
        gold = {t.text for t in question.gold_triples}
    return {
        "em": rollout.rewards["em"],
        "f1": best.f1,
        "prec": best.precision,
        "recall": best.recall,
        "answered": float(rollout.outcome == "answered"),
        "well_formed": rollout.rewards["well_formed"],
        "evidence_recall": len(gold & seen) / len(gold) if gold else 0.0,
        "turns": float(sum(turn.speaker == "agent" for turn in rollout.planner.turns)),
        "searches": float(len(rollout.workers)),
        "tokens": float(sum(sum(t.agent_mask) for t in rollout.trajectories)),
    }


def _open_phase(
    setting: Setting, path: Path, phase: str, model: str, *, demonstrate: bool, evaluation: EvaluationSpec | None
) -> Phase:
    """Bring up the engine and the retriever: the slow part, left out when a step has nothing to do."""
    from platform_sdk.retrieval.environments import build_retriever
    from platform_sdk.sampling.load import load_engine

    retriever = build_retriever(setting.environment, setting.run_dir, setting.retrieval)
    if retriever.corpus_digest != setting.corpus_digest:
        raise UserError(
            f"{setting.run_dir}: the retriever searches corpus {retriever.corpus_digest[:12]}…, but this run's is "
            f"{setting.corpus_digest[:12]}…; build the index again"
        )
    engine = load_engine(setting.sampling.engine, model)
    distribution = evaluation or setting.sampling
    agent = Mujica(
        tokenizer=engine.tokenizer,
        spec=setting.agent,
        form=form_of(setting.environment),
        demonstrate=demonstrate,
        temperature=distribution.temperature,
        top_p=distribution.top_p,
        top_k=0 if evaluation else setting.sampling.top_k,
        weights=engine.weight_version,
        corpus=retriever.corpus_digest,
        seed=setting.seed,
        # An evaluation asks the same questions of every model with the same seeds.
        phase="evaluation" if evaluation else phase,
    )
    return Phase(path, agent, engine, retriever.search, setting.sampling.engine.live)


def _questions(setting: Setting, part: str) -> list[Question]:
    questions = list(read_jsonl(setting.run_dir / "corpus" / f"questions.{part}.jsonl", Question))
    if not questions:
        raise UserError(f"{setting.run_dir}/corpus: there are no questions for {part}; see dataset in the recipe")
    return questions


def _weights_digest(model: str) -> str:
    from platform_sdk.sampling.models import weights_digest

    return weights_digest(model)


def _digest(*parts: Any) -> str:
    """A digest of a step's inputs: settings, names and numbers."""

    def plain(part: Any) -> Any:
        if isinstance(part, Setting):
            # The place of a run is not an input: a moved run directory is the same run.
            return {k: plain(v) for k, v in vars(part).items() if k != "run_dir"}
        return part.model_dump(mode="json") if hasattr(part, "model_dump") else part

    return hashlib.sha256(json.dumps([plain(part) for part in parts], sort_keys=True).encode()).hexdigest()


def _begin(folder: Path, inputs: str) -> None:
    """Note what a phase is sampled with, so that a killed one is not continued with other settings."""
    begun = folder / "begun.json"
    if begun.exists() and _read_json(begun)["inputs"] != inputs:
        raise UserError(f"{folder}: was begun with other settings; use another --workdir, or remove it")
    _write_json(begun, {"inputs": inputs})


def _finished(path: Path, inputs: str) -> dict[str, Any] | None:
    """The outcome of an earlier, finished run of a step with the same inputs."""
    if not path.exists():
        return None
    outcome = _read_json(path)
    if outcome.get("inputs") != inputs:
        raise UserError(f"{path}: was made with other settings; use another --workdir, or remove {path.parent}")
    return outcome


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: missing; run the steps before this one first") from error
    assert isinstance(content, dict)
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
