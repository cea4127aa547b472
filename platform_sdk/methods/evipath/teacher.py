"""The teacher with a language model: abductive planning, then faithful answering of sub-questions.

With ``mode: abductive`` the teacher gets the answer and the gold evidence, and its sub-questions are answered from
them. With the other modes it is the agent with worked paths, which searches; ``answer-only`` adds the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from platform_sdk.agents import planner_messages as messages
from platform_sdk.agents.planner_messages import Medium, medium_of
from platform_sdk.agents.planner_worker import Answer, Ask, Malformed
from platform_sdk.agents.sections import section, without_thoughts
from platform_sdk.agents.speaker import Decoding, Policy, Speaker
from platform_sdk.errors import UserError
from platform_sdk.methods.evipath import evidence
from platform_sdk.methods.evipath.evidence import Comparison
from platform_sdk.methods.evipath.grammar import ANSWERING, ASKING, parse_planner, tags_of, thoughts_of
from platform_sdk.methods.evipath.planning import without_plan
from platform_sdk.methods.evipath.proxy import Facts, Proxy, open_proxy
from platform_sdk.methods.evipath.records import Example, Step, SubQuestion
from platform_sdk.methods.evipath.search_teacher import SearchingTeacher
from platform_sdk.methods.evipath.settings import AgentSpec, SynthesisSpec
from platform_sdk.methods.evipath.synthesis import Round, Synthesis, Teaching, open_similarity
from platform_sdk.methods.evipath.teacher_prompts import TeacherPrompts
from platform_sdk.methods.method import open_search
from platform_sdk.records import Question
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.load import load_engine
from platform_sdk.sampling.rollout import Agent, Call, Gather
from platform_sdk.sampling.seeds import seed_of


class Rejection(Exception):
    """A path that the teacher cannot finish: the reason, and the finding."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass
class Talk:
    """The teacher's dialogues for one question, with counts of calls and sampled tokens."""

    speaker: Speaker
    calls: int = 0
    dialogues: list[Dialogue] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(sum(dialogue.mask) for dialogue in self.dialogues)

    def open(self, system: str, opening: str, example: Sequence[str]) -> Dialogue:
        """Open a dialogue with the teacher."""
        self.dialogues.append(self.speaker.dialogue(system, opening, example))
        return self.dialogues[-1]

    def reply(self, dialogue: Dialogue, place: str) -> Agent[str]:
        """Sample the teacher's next turn.

        Raises:
            Rejection: the context is full, or the turn was cut off.
        """
        self.calls += 1
        reply = yield from self.speaker.reply(dialogue, place)
        if reply is None:
            raise Rejection("context", f"{place}: the prompt is longer than the teacher reads")
        if reply.cut:
            raise Rejection("cut", f"{place}: the turn is longer than synthesis.max_tokens")
        return reply.text.strip()


@dataclass(frozen=True)
class AbductiveTeacher:
    """Teacher that reasons backwards from answers and gold evidence, which ``compare`` compares with sub-answers."""

    policy: Policy
    decoding: Decoding
    agent: AgentSpec
    spec: SynthesisSpec
    proxy: Proxy
    compare: Callable[[list[Any]], Sequence[Any]]
    encoder: str
    seed: int

    def example(self, question: Question, attempt: int) -> Agent[Example]:
        """Write a question's path; a path that cannot be finished is rejected with the reason.

        Another attempt samples with another seed.
        """
        facts = self.proxy.facts(question)
        medium = facts.medium
        prompts = self._prompts(medium)
        secrets = [*(triple.tail for triple in question.gold_triples), *(hop.answer for hop in question.decomposition)]
        blank = Example(
            id=question.id, dataset=question.dataset, question=question.text, type=question.type, hops=question.hops,
            medium=medium, answers=question.answers, secrets=tuple(dict.fromkeys(secrets)), pool=facts.pool,
            gold=facts.gold, candidates=question.topic_entities if medium == "kg" else (),
            teacher=self.policy.weights, prompts=prompts.digest(), encoder=self.encoder,
        )  # fmt: skip
        if not facts.gold:
            detail = "the record names no gold evidence that is in its context"
            return blank.model_copy(update={"rejected": "no-evidence", "detail": detail})
        seed = seed_of(self.seed, "synthesis", question.id, *([attempt] if attempt else ()))
        talk = Talk(Speaker(self.policy.tokenizer, self.decoding, question.id, seed, self.spec.max_tokens))
        try:
            written = yield from self._written(blank, facts, talk)
        except Rejection as rejection:
            written = blank.model_copy(update={"rejected": rejection.reason, "detail": str(rejection)})
        return written.model_copy(update={"tokens": talk.tokens, "calls": talk.calls})

    def _prompts(self, medium: Medium) -> TeacherPrompts:
        return TeacherPrompts(self.agent.prompts, medium, self.agent.sub_questions)

    def _written(self, path: Example, facts: Facts, talk: Talk) -> Agent[Example]:
        medium, max_questions = facts.medium, self.agent.sub_questions
        prompts = self._prompts(medium)
        opening = prompts.planner_opening(path.question, path.candidates, path.answers[0], facts.gold_texts())
        planner = talk.open(prompts.planner_system, opening, prompts.planner_examples())
        for turn in range(self.agent.iteration_limit):
            text = yield from talk.reply(planner, f"turn {turn + 1}")
            known = path.known_candidates()[-1]
            action = parse_planner(text, medium, candidates=len(known), max_questions=max_questions)
            if isinstance(action, Malformed):
                reason = "action" if tags_of(text) in (ASKING, ANSWERING) else "tags"
                raise Rejection(reason, f"turn {turn + 1}: {action.reason}: {text}")
            thoughts = thoughts_of(text)
            if turn == 0:
                plan, thoughts = without_plan(thoughts)
                path = path.model_copy(update={"plan": plan})
            if isinstance(action, Answer):
                return path.model_copy(update={"thoughts": thoughts, "answer": action.text})
            path = yield from self._stepped(path, action, thoughts, facts, talk, turn)
            after = path.known_candidates()[-1][len(known) :] if medium == "kg" else ()
            planner.tell(messages.observation([sub.answer for sub in path.steps[-1].asked], after, len(known)))
        raise Rejection("iteration-limit", f"no answer within {self.agent.iteration_limit} turns")

    def _stepped(
        self, path: Example, action: Ask, thoughts: str, facts: Facts, talk: Talk, turn: int
    ) -> Agent[Example]:
        known = path.known_candidates()[-1]
        executors = tuple(
            self._executed(
                sub.text, "" if sub.candidate is None else known[sub.candidate], facts, talk, f"{turn}.{number}"
            )
            for number, sub in enumerate(action.sub_questions)
        )
        found: list[SubQuestion | Rejection] = yield Gather(executors)
        for sub in found:
            if isinstance(sub, Rejection):
                raise sub
        asked = tuple(sub for sub in found if isinstance(sub, SubQuestion))
        return path.model_copy(update={"steps": (*path.steps, Step(thoughts=thoughts, asked=asked))})

    def _executed(
        self, question: str, candidate: str, facts: Facts, talk: Talk, place: str
    ) -> Agent[SubQuestion | Rejection]:
        """Answer a sub-question from the gold evidence, select its evidence, and write thoughts on all evidence."""
        prompts = self._prompts(facts.medium)
        try:
            gold = facts.gold_texts()
            opening = prompts.answerer_opening(question, gold)
            answerer = talk.open(prompts.answerer_system, opening, prompts.answerer_examples())
            sentence = without_thoughts((yield from talk.reply(answerer, f"answer {place}")))
            if not sentence or "\n" in sentence:
                return Rejection("sub-answer", f"is not one sentence: {sentence!r}")
            [similarities] = yield Call(self.compare, (Comparison(sentence, gold),))
            places = tuple(facts.gold[place] for place in evidence.select(similarities, self.spec.tau))
            rng = random.Random(f"shown {self.seed} {talk.speaker.name} {place}")
            shown = facts.shown(places, candidate, self.spec.shown, rng)
            selected = tuple(shown.index(place) for place in places)
            pieces = messages.materials([facts.pool[place] for place in shown], facts.medium)
            opening = prompts.thinker_opening(question, pieces, sentence, selected)
            thinker = talk.open(prompts.thinker_system, opening, prompts.thinker_examples())
            text = yield from talk.reply(thinker, f"thoughts {place}")
        except Rejection as rejection:
            return rejection
        thoughts = section(text, "think")
        if thoughts is None or tags_of(text) != ("<think>", "</think>"):
            return Rejection("tags", f"the executor's thoughts cannot be read: {text}")
        return SubQuestion(
            question=question, candidate=candidate, answer=sentence, shown=shown, selected=selected,
            similarities=similarities, thoughts=thoughts,
        )  # fmt: skip


class ModelSynthesis(Synthesis):
    """Synthesis by a language model, through any sampling engine."""

    @contextmanager
    def teaching(self, round: Round) -> Iterator[Teaching]:
        run, spec, medium = round.run, round.settings, medium_of(round.run.environment)
        if fault := spec.model_fault(run.decoding.temperature):
            raise UserError(str(fault))
        with closing(load_engine(run.sampling.engine, round.model)) as engine:
            policy = Policy(engine.tokenizer, engine.weight_version)
            if spec.mode != "abductive":
                with open_search(run) as search:
                    teacher = SearchingTeacher(run, policy, spec, search)
                    yield Teaching(teacher.example, engine, run.sampling.engine.live)
                return
            proxy = open_proxy(run.run_dir, medium, spec, run.seed)
            compare, encoder = open_similarity(run)
            writer = AbductiveTeacher(policy, run.decoding, run.agent, spec, proxy, compare, encoder, run.seed)
            yield Teaching(writer.example, engine, run.sampling.engine.live)
