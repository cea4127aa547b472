"""Kept examples as rollouts of the student's tokens, for the trainer."""

from __future__ import annotations

from hashlib import sha256

from platform_sdk.agents.planner_messages import medium_of
from platform_sdk.agents.planner_rewards import rewards
from platform_sdk.errors import UserError
from platform_sdk.methods.evipath.dialogues import chats, rollouts
from platform_sdk.methods.evipath.path_statistics import statistics
from platform_sdk.methods.evipath.records import Example
from platform_sdk.methods.evipath.settings import NO_GOLD, PROMPTS_WITHOUT_TEACHER, AgentSpec, LearningSpec
from platform_sdk.methods.evipath.synthesis import EXAMPLES, REJECTED, SynthesisCarry
from platform_sdk.methods.evipath.teacher_prompts import TeacherPrompts
from platform_sdk.methods.method import RunContext, Sampling, SamplingOutcome, SamplingStep
from platform_sdk.record_files import check_digest, read_jsonl, write_log
from platform_sdk.records import Rollout
from platform_sdk.run_dir import PhaseDir
from platform_sdk.sampling.models import load_tokenizer
from platform_sdk.sampling.pairs import models_of, policy_digest

SHOWN = 5
"""Number of paths shown with their dialogues on the statistics page."""


class Dialogues(SamplingStep[AgentSpec, LearningSpec, SynthesisCarry]):
    """Dialogues of kept examples for supervised fine-tuning: planner, executor, or both."""

    settings = LearningSpec
    carry = SynthesisCarry

    def asks_model(self, run: RunContext[AgentSpec], settings: LearningSpec) -> bool:
        return False

    def sample(self, round: Sampling[AgentSpec, LearningSpec, SynthesisCarry]) -> SamplingOutcome[SynthesisCarry]:
        run, spec, agent = round.run, round.settings, round.run.agent
        path = run.run_dir / round.carry.phase / EXAMPLES
        check_digest(path, Example, round.carry.examples)
        examples = sorted(read_jsonl(path, Example), key=_order)[: spec.examples]
        if spec.needing_gold and examples and not any(example.gold for example in examples):
            raise UserError(f"learning.{spec.needing_gold[0]}: {NO_GOLD}")
        if spec.teacher_prompts and agent.prompts != "compact":
            raise UserError(f"learning.teacher_prompts: {PROMPTS_WITHOUT_TEACHER}")
        questions = {question.id: question for question in run.questions("train")}
        teacher = TeacherPrompts(agent.prompts, medium_of(run.environment), agent.sub_questions)
        tokenizer = load_tokenizer(models_of(round.model).get("planner", round.model))
        weights = policy_digest(round.model)
        learned = [
            rollout.model_copy(update={"rewards": rewards(rollout)})
            for example in examples
            for rollout in rollouts(
                example, questions[example.id], agent.prompts, agent.sub_questions, spec.roles, spec.unanswerable,
                tokenizer, weights, run.searched_digest,
                tuple(teacher.chats(example, spec.roles)) if spec.teacher_prompts else (),
            )
        ]  # fmt: skip
        write_log(PhaseDir(round.folder).rollouts, Rollout, learned)
        synthesised = [*read_jsonl(path, Example), *read_jsonl(path.with_name(REJECTED), Example)]
        shown = (c for e in examples[:SHOWN] for c in chats(e, agent.prompts, agent.sub_questions, spec.roles))
        statistics(synthesised, learned, shown).write(round.folder)
        figures = {"paths": len(examples)}
        return SamplingOutcome(learned, [example.id for example in examples], round.carry, figures=figures)


def _order(example: Example) -> str:
    """Return a random sort key that depends only on the example, so a smaller draw is a subset of a larger one."""
    return sha256(example.id.encode()).hexdigest()
