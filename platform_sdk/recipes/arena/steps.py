"""What the pipeline's components call: evaluate, train online, write demonstrations, score again.

Each step reads and writes the run directory, does nothing when its result is there already for the same inputs, and
goes on where a killed one stopped.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.config.errors import UserError
from platform_sdk.config.judge import JudgeSpec
from platform_sdk.config.online import OnlineSpec
from platform_sdk.evaluation import run
from platform_sdk.evaluation.run import Evaluated
from platform_sdk.files import REMEDY
from platform_sdk.recipes.arena.demonstrations import Explainer, direct_demonstration, reasoned_demonstration
from platform_sdk.recipes.arena.measures import measures
from platform_sdk.recipes.arena.rewards import gold_numbers, judged, rewards
from platform_sdk.recipes.arena.setting import Setting
from platform_sdk.recipes.arena.settings import DemonstrationSpec, EvaluationSpec
from platform_sdk.recipes.arena.speaker import Distribution
from platform_sdk.record_files import digest_records, read_jsonl, write_jsonl
from platform_sdk.records import Evidence, Question, Rollout
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.models import load_tokenizer, weights_digest
from platform_sdk.sampling.phase import Phase, open_phase
from platform_sdk.sampling.rollout import SearchRequest
from platform_sdk.tracking.outcomes import begin, digest_of, finished, set_aside, write_json

if TYPE_CHECKING:
    from platform_sdk.evaluation.judge import Judge
    from platform_sdk.training.online.loop import OnlineResult

EVALUATION = "evaluation"
"""An evaluation asks the same questions of every model with the same seeds, whatever its folder is called."""


def evaluate(setting: Setting, phase: str, model: str, evaluation: EvaluationSpec) -> Evaluated:
    """Answer every evaluation question once, and write ``scores.json`` with 95 % bootstrap intervals."""
    path = setting.run_dir / phase / "rollouts.jsonl"

    @contextmanager
    def opened() -> Iterator[Phase]:
        with opened_judge(setting.agent.rewards.judge) as judge:
            make = partial(setting.generator, _distribution(evaluation), judge, phase=EVALUATION)
            with open_phase(path, setting.sampling.engine, model, no_search, make) as work:
                yield work

    return run.evaluate(
        opened,
        setting.questions("eval"),
        partial(_measured, setting, phase, evaluation),
        outcome=path.with_name(run.SCORES),
        inputs=digest_of(setting.inputs, weights_digest(model), evaluation),
        seed=setting.seed,
    )


def online(setting: Setting, phase: str, model: str, spec: OnlineSpec, evaluation: EvaluationSpec) -> OnlineResult:
    """Train ``model`` on its own responses with GRPO (ARENA, section 3.2), into ``<phase>/model``.

    Evaluations between updates are written to ``eval-u0050``, ….
    """
    from platform_sdk.training.credit import GroupAdvantage
    from platform_sdk.training.online.loop import train_online
    from platform_sdk.training.online.task import OnlineTask

    folder = setting.run_dir / phase
    with opened_judge(setting.agent.rewards.judge) as judge:
        task = OnlineTask(
            questions=setting.questions("train"),
            search=no_search,
            make_agent=partial(setting.generator, setting.training_distribution, judge),
            live=setting.sampling.engine.live,
            credit=GroupAdvantage(spec.reward),
        )
        return train_online(
            spec,
            task,
            model,
            folder / "model",
            engine=setting.sampling.engine,
            seed=setting.seed,
            folder=folder,
            on_update=partial(_evaluate_between, setting, evaluation, judge),
        )


def _evaluate_between(
    setting: Setting, evaluation: EvaluationSpec, judge: Judge | None, update: int, engine: SamplingEngine
) -> None:
    """Evaluate the weights that an update left, with the engine that has them."""
    folder = setting.run_dir / f"eval-u{update:04d}"
    inputs = digest_of(setting.inputs, engine.weight_version, evaluation)
    # On a GPU a resumed run need not come to the very weights that were evaluated before it was killed.
    set_aside(folder, inputs)
    agent = setting.generator(_distribution(evaluation), judge, engine.tokenizer, engine.weight_version, EVALUATION)
    run.evaluate(
        lambda: Phase(folder / "rollouts.jsonl", agent, engine, no_search, setting.sampling.engine.live),
        setting.questions("eval"),
        partial(_measured, setting, folder.name, evaluation),
        outcome=folder / run.SCORES,
        inputs=inputs,
        seed=setting.seed,
    )


def _measured(
    setting: Setting, phase: str, evaluation: EvaluationSpec, rollouts: Sequence[Rollout]
) -> list[dict[str, float]]:
    if setting.agent.rewards.judge is None:  # a judge's verdicts are not asked for twice
        for rollout in rollouts:
            if rollout.rewards != rewards(rollout, setting.agent):
                path = setting.run_dir / phase / "rollouts.jsonl"
                raise UserError(f"{path}: {rollout.id}: the recorded rewards are not those of its response; {REMEDY}")
    return measures(setting.agent, evaluation.judge, rollouts)


def explains(setting: Setting) -> bool:
    """Whether the model is asked for something in the demonstrations: the form ``direct`` is the gold answer alone."""
    return setting.agent.form != "direct"


@dataclass(frozen=True)
class Demonstrated:
    """What a supervised baseline learns from: where it is, its digest, and the counts."""

    path: Path
    digest: str
    figures: dict[str, Any]


def demonstrate(setting: Setting, phase: str, model: str, spec: DemonstrationSpec) -> Demonstrated:
    """Write the demonstrations of the agent's form to ``<phase>/selected.jsonl`` (ARENA, appendix D).

    Raises:
        UserError: the agent's form is one that nobody demonstrates.
    """
    if setting.agent.form == "think":
        raise UserError("agent.form: there are no demonstrations of the form think; use direct or three_part")
    folder = setting.run_dir / phase
    path, outcome = folder / "selected.jsonl", folder / "demonstrations.json"
    weights = weights_digest(model)
    inputs = digest_of(setting.inputs, phase, weights, spec)
    figures = finished(outcome, inputs)
    if figures is None:
        begin(folder, inputs)
        questions = setting.questions("train")
        random.Random(f"{phase} {setting.seed}").shuffle(questions)
        questions = questions[: spec.questions]
        found = (
            _explained(setting, phase, model, spec, questions)
            if explains(setting)
            else _answers(setting, phase, model, weights, questions)
        )
        write_jsonl(path, Rollout, found)
        figures = {
            "inputs": inputs,
            "digest": digest_records(found),
            "questions": len(questions),
            "demonstrations": len(found),
            "left_out": len(questions) - len(found),
        }
        write_json(outcome, figures)
    return Demonstrated(path, figures["digest"], figures)


def _answers(setting: Setting, phase: str, model: str, weights: str, questions: Sequence[Question]) -> list[Rollout]:
    tokenizer = load_tokenizer(model)
    generator = setting.generator(setting.training_distribution, None, tokenizer, weights, phase)
    return [direct_demonstration(generator, question) for question in questions]


def _explained(
    setting: Setting, phase: str, model: str, spec: DemonstrationSpec, questions: Sequence[Question]
) -> list[Rollout]:
    """Have the model explain the answers; a question whose context holds no gold passage cannot be explained."""
    explicable = [question for question in questions if gold_numbers(question)]
    distribution = replace(setting.training_distribution, max_tokens=spec.reasoning_tokens)

    def make_agent(tokenizer: Any, weights: str) -> Explainer:
        return Explainer(setting.generator(distribution, None, tokenizer, weights, phase))

    path = setting.run_dir / phase / "rollouts.jsonl"
    with open_phase(path, setting.sampling.engine, model, no_search, make_agent) as work:
        work.once(explicable, 0, phase)
        agent = make_agent(work.engine.tokenizer, work.engine.weight_version).generator
        found = [reasoned_demonstration(agent, rollout) for rollout in work.ordered(explicable)]
    return [rollout for rollout in found if rollout is not None]


def rescore(setting: Setting, phase: str) -> dict[str, float]:
    """Score a phase's rollouts again, from their texts, and compare with the rewards that they carry.

    Returns:
        The mean of each reward over all rollouts of the phase, the online ones of all updates; nothing where no
        rollout was sampled (no updates).

    Raises:
        UserError: a rollout carries other rewards, or there is no such phase.
    """
    folder = setting.run_dir / phase
    files = sorted([*folder.glob("rollouts.jsonl"), *folder.glob("rollouts/*.jsonl")])
    if not folder.exists():
        raise UserError(f"{folder}: there is no such phase; run it first")
    totals: Counter[str] = Counter()
    count = 0
    with opened_judge(setting.agent.rewards.judge) as judge:
        for file in files:
            rollouts = list(read_jsonl(file, Rollout))
            again = (
                [r.model_copy(update={"rewards": rewards(r, setting.agent)}) for r in rollouts]
                if judge is None
                else judged(rollouts, setting.agent, judge)
            )
            for before, after in zip(rollouts, again, strict=True):
                if before.rewards != after.rewards:
                    raise UserError(f"{file}: {before.id}: the recorded rewards are not those of its response")
                totals.update(after.rewards)
            count += len(rollouts)
    return {name: total / count for name, total in totals.items()}


@contextmanager
def opened_judge(spec: JudgeSpec | None) -> Iterator[Judge | None]:
    """The judge of a recipe, if it has one."""
    if spec is None:
        yield None
        return
    from platform_sdk.evaluation.judge import Judge

    with Judge(spec) as judge:
        yield judge


def no_search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    """What is searched where the passages are given."""
    raise AssertionError("ARENA's agents search nothing")


def _distribution(evaluation: EvaluationSpec) -> Distribution:
    return Distribution(evaluation.temperature, evaluation.top_p, 0, evaluation.max_tokens)
