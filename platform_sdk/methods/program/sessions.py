"""Sessions of the program with another model, which the policy is fine-tuned on.

The program runs as it does with the policy, but its completions come from a teacher at an OpenAI-compatible URL. The
teacher's text is rendered by the policy's chat template and tokenized; no policy has sampled these tokens, so they have
no log-probabilities and are for maximum likelihood alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.selection import NO_OWN_REWARD
from platform_sdk.errors import UserError
from platform_sdk.gateway.events import CompletionAsked
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.sessions import Session
from platform_sdk.methods.method import NoCarry, RunContext, Sampling, SamplingOutcome, SamplingStep, SelectionOutcome
from platform_sdk.methods.program.agent import ProgramAgent
from platform_sdk.methods.program.launch import open_resources, program_agent
from platform_sdk.methods.program.settings import AgentSpec, SessionsSpec
from platform_sdk.methods.program.teacher import Teacher
from platform_sdk.methods.selection import acceptance, select
from platform_sdk.processes.shares import own_share
from platform_sdk.records import Question, Rollout
from platform_sdk.run_dir import PhaseDir
from platform_sdk.sampling.engine import Completion, SamplingEngine
from platform_sdk.sampling.models import load_tokenizer, weights_digest
from platform_sdk.sampling.rollout import Agent, Call
from platform_sdk.sampling.sampler import RolloutSampler
from platform_sdk.tracking.outcomes import digest_of
from platform_sdk.training.online.questions import shuffled


@dataclass(frozen=True)
class TaughtAgent(ProgramAgent):
    """The program with the teacher's completions; its rollouts have no log-probabilities."""

    teacher: Teacher

    @property
    def weights(self) -> str:
        """Digest of the teacher's name in place of a policy's weights."""
        return digest_of(self.teacher.spec.url, self.teacher.spec.model)

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        rollout = yield from super().rollout(question, attempt)
        main, *others = [each.model_copy(update={"logprobs": ()}) for each in rollout.recorded]
        return rollout.model_copy(update={"main": main, "others": tuple(others)})

    def _complete(self, session: Session, asked: CompletionAsked) -> Agent[Completion]:
        call = session.asked(asked)
        if call.plain:
            raise Refusal(400, "a teacher answers chats alone; call chat/completions or responses", "prompt")
        [reply] = yield Call(self.teacher.replies, ((call, asked.params),), concurrent=True)
        if isinstance(reply, Refusal):
            raise reply
        try:
            return session.template.recited(asked.id, call.skeleton, reply.message, cut=reply.cut)
        except RecursionError:
            raise Refusal(400, "the teacher's arguments of a function are nested too deeply") from None


class RecordedSessions(SamplingStep[AgentSpec, SessionsSpec, NoCarry]):
    """The program's sessions with a teacher; those with a high enough reward are learned from."""

    settings = SessionsSpec
    carry = NoCarry

    def asks_model(self, run: RunContext[AgentSpec], settings: SessionsSpec) -> bool:
        return False

    def sample(self, round: Sampling[AgentSpec, SessionsSpec, NoCarry]) -> SamplingOutcome[NoCarry]:
        run, spec = round.run, round.settings
        if spec.reward == "own" and run.agent.reward is None:
            raise UserError(f"sessions.reward {NO_OWN_REWARD}")
        questions = shuffled(run.questions("train"), f"{round.phase} {run.seed}")[: spec.questions]
        policy = Policy(load_tokenizer(round.model), weights_digest(round.model))
        with open_resources(run) as resources, Teacher(spec) as teacher:
            agent = program_agent(run, policy, run.decoding, round.phase, resources)
            taught = TaughtAgent(**vars(agent), teacher=teacher)
            path, no_engine = PhaseDir(round.folder).rollouts, cast(SamplingEngine, None)  # nothing is sampled
            with RolloutSampler(path, taught, no_engine, 0, own_share(), spec.concurrent) as phase:
                for number in range(spec.attempts):
                    open_questions = [question for question in questions if _is_open(phase, question, spec)]
                    phase.once(open_questions, number, "sessions")
                rollouts = phase.ordered(questions)
        return SamplingOutcome(rollouts, [question.id for question in questions], NoCarry(), seconds=phase.seconds)

    def select(
        self, settings: SessionsSpec, carry: NoCarry, rollouts: Sequence[Rollout], candidates: Sequence[Rollout]
    ) -> SelectionOutcome:
        chosen = select(candidates, settings.reward, settings.threshold, settings.accepted)
        return SelectionOutcome(chosen, acceptance(rollouts, settings.reward, settings.threshold))


def _is_open(phase: RolloutSampler, question: Question, spec: SessionsSpec) -> bool:
    """Return True if a question has fewer sessions of the wanted reward than are accepted."""
    return sum(value >= spec.threshold for value in phase.rewards(question, spec.reward).values()) < spec.accepted
