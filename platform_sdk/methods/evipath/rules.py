"""The teacher without a language model: correct paths from the dataset's own triples or decomposition."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from platform_sdk.agents.planner_messages import medium_of
from platform_sdk.errors import UserError
from platform_sdk.methods.evipath import evidence, phrases
from platform_sdk.methods.evipath.evidence import Comparison
from platform_sdk.methods.evipath.hops import Need, Refusal, Solution, solve, tongue_of
from platform_sdk.methods.evipath.phrases import THOUGHTS, Tongue, drawn, joined
from platform_sdk.methods.evipath.proxy import Facts, Proxy, open_proxy
from platform_sdk.methods.evipath.records import Example, Step, SubQuestion
from platform_sdk.methods.evipath.settings import AgentSpec, SynthesisSpec
from platform_sdk.methods.evipath.synthesis import Round, Synthesis, Teaching, open_similarity
from platform_sdk.methods.method import RunContext
from platform_sdk.records import Question
from platform_sdk.sampling.rollout import Agent, Call
from platform_sdk.tracking.outcomes import digest_of

LIVE = 256
"""Number of questions processed concurrently, so that their evidence is encoded in batches."""
DATASETS = ("2wikimultihopqa", "musique", "world")


def check_dataset(questions: Sequence[Question]) -> None:
    """Raise a UserError if the rules do not support a question's dataset."""
    for question in questions:
        if question.dataset not in DATASETS:
            raise UserError(
                f"teacher: {question.dataset} has neither evidence triples nor a decomposition, so it needs an LLM; "
                f"set teacher: llm (the rules know {', '.join(DATASETS)})"
            )


@dataclass(frozen=True)
class Rules:
    """The rule-based teacher; ``compare`` gives the similarities of sub-answers to evidence."""

    proxy: Proxy
    spec: SynthesisSpec
    compare: Callable[[list[Any]], Sequence[Any]]
    encoder: str
    seed: int

    teacher: ClassVar[str] = digest_of("rules", phrases.VERSION)
    prompts: ClassVar[str] = digest_of({name: asdict(thoughts) for name, thoughts in THOUGHTS.items()})

    def example(self, question: Question) -> Agent[Example]:
        """Write a question's path; the same for the same seed."""
        rng = random.Random(f"rules {self.seed} {question.id}")
        facts = self.proxy.facts(question)
        solved = solve(question, facts, rng)
        blank = Example(
            id=question.id, dataset=question.dataset, question=question.text, type=question.type, hops=question.hops,
            medium=facts.medium, answers=question.answers, pool=facts.pool, gold=facts.gold,
            candidates=question.topic_entities if facts.medium == "kg" else (),
            teacher=self.teacher, prompts=self.prompts, encoder=self.encoder,
        )  # fmt: skip
        if isinstance(solved, Refusal):
            return blank.model_copy(update={"rejected": solved.reason, "detail": solved.detail})
        steps: list[Step] = []
        known: list[str] = []
        tongue = tongue_of(question)
        for needs in solved.levels():
            asked = []
            for need in needs:
                asked.append((yield from self._asked(need, facts, tongue, rng)))
            thoughts = drawn(THOUGHTS[tongue].next if steps else THOUGHTS[tongue].first, rng)
            wanted = joined([need.named for need in needs], tongue)
            steps.append(Step(thoughts=thoughts.format(needs=wanted, known=" ".join(known)), asked=tuple(asked)))
            known = [sub.answer for sub in asked]
        return blank.model_copy(
            update={
                "secrets": tuple(value for need in solved.needs for value in need.values),
                "plan": tuple(need.planned for need in solved.needs),
                "steps": tuple(steps),
                "thoughts": self._last(solved, known, tongue, rng),
                "answer": solved.answer,
            }
        )

    def _asked(self, need: Need, facts: Facts, tongue: Tongue, rng: random.Random) -> Agent[SubQuestion]:
        """Write the executor's part, with the dataset's evidence if given, else by similarity."""
        [similarities] = yield Call(self.compare, (Comparison(need.sentence, facts.gold_texts()),))
        places = need.evidence or tuple(facts.gold[place] for place in evidence.select(similarities, self.spec.tau))
        shown = facts.shown(places, need.subject, self.spec.shown, rng)
        selected = tuple(shown.index(place) for place in places)
        thoughts = drawn(THOUGHTS[tongue].executor, rng).format(
            need=need.named,
            Need=f"{need.named[0].upper()}{need.named[1:]}",
            index=joined([f"[{index}]" for index in selected], tongue),
            sentence=need.sentence,
        )
        return SubQuestion(
            question=need.question, candidate=need.subject if facts.medium == "kg" else "", answer=need.sentence,
            shown=shown, selected=selected, similarities=similarities, thoughts=thoughts,
        )  # fmt: skip

    def _last(self, solved: Solution, known: Sequence[str], tongue: Tongue, rng: random.Random) -> str:
        kinds = THOUGHTS[tongue]
        text = drawn(kinds.compared if solved.by_comparison else kinds.last, rng)
        return text.format(known=" ".join(known), answer=solved.answer)


class RuleSynthesis(Synthesis):
    """Synthesis by rules, without a model."""

    def asks_model(self, run: RunContext[AgentSpec], settings: SynthesisSpec) -> bool:
        return False

    def check(self, spec: SynthesisSpec, questions: Sequence[Question]) -> None:
        if fault := spec.rules_fault():
            raise UserError(str(fault))
        check_dataset(questions)

    @contextmanager
    def teaching(self, round: Round) -> Iterator[Teaching]:
        run, spec = round.run, round.settings
        proxy = open_proxy(run.run_dir, medium_of(run.environment), spec, run.seed)
        compare, encoder = open_similarity(run)
        rules = Rules(proxy, spec, compare, encoder, run.seed)
        yield Teaching(lambda question, attempt: rules.example(question), None, LIVE)
