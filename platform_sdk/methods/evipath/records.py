"""A synthesised example: a question's plan and steps, and the executor's evidence, selection and answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from platform_sdk.agents.planner_messages import Medium
from platform_sdk.config.struct import Struct
from platform_sdk.records import Evidence, Record


class SubQuestion(Struct):
    """A sub-question of the planner, and the executor's result.

    Attributes:
        question: full names, no pronouns.
        candidate: the entity to visit, for a search in a knowledge graph.
        answer: one declarative sentence.
        shown: the evidence shown to the executor, as indices into the example's pool.
        selected: the evidence of the answer, as indices into ``shown``.
        similarities: similarities of the answer to each gold piece of evidence; empty without gold evidence.
        thoughts: the executor's thoughts.
    """

    question: str
    candidate: str = ""
    answer: str
    shown: tuple[int, ...]
    selected: tuple[int, ...]
    similarities: tuple[float, ...] = ()
    thoughts: str


class Step(Struct):
    """A turn of the planner: thoughts, and sub-questions that do not depend on each other."""

    thoughts: str
    asked: tuple[SubQuestion, ...]


class Example(Record):
    """A reasoning path, kept or rejected.

    Attributes:
        id: the question's id.
        answers: the accepted answers.
        secrets: answers of sub-questions known to the teacher beforehand.
        candidates: start entities of the planner in a knowledge graph.
        pool: supporting facts with distractors, F; of a searching teacher, all evidence that its executors were shown.
        gold: indices of the gold evidence in the pool; empty for a searching teacher.
        plan: sub-questions of the initial plan, possibly under-specified.
        thoughts: thoughts before the answer.
        answer: the teacher's final answer.
        rejected: the name of the first failed check; empty if the example is kept.
        detail: the finding of the failed check.
        teacher: digest of the teacher.
        prompts: digest of the teacher's prompts or rules.
        encoder: digest of the encoder for comparing evidence.
        tokens: number of tokens sampled for this example.
        calls: number of calls of the teacher's model.
        attempts: number of attempts at the path; ``tokens`` and ``calls`` are totals of all attempts.
    """

    KIND: ClassVar[str] = "evipath_example"

    id: str
    dataset: str
    question: str
    type: str = ""
    hops: int | None = None
    medium: Medium
    answers: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    pool: tuple[Evidence, ...] = ()
    gold: tuple[int, ...] = ()
    plan: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    thoughts: str = ""
    answer: str = ""
    rejected: str = ""
    detail: str = ""
    teacher: str = ""
    prompts: str = ""
    encoder: str = ""
    tokens: int = Field(default=0, ge=0)
    calls: int = Field(default=0, ge=0)
    attempts: int = Field(default=1, ge=1, exclude_if=lambda attempts: attempts == 1)

    @property
    def kept(self) -> bool:
        return not self.rejected

    def asked(self) -> Iterator[SubQuestion]:
        """Yield all sub-questions in their order."""
        for step in self.steps:
            yield from step.asked

    def evidence(self, asked: SubQuestion) -> tuple[Evidence, ...]:
        """Return the evidence shown to the executor for a sub-question."""
        return tuple(self.pool[place] for place in asked.shown)

    def evidence_selected(self, asked: SubQuestion) -> tuple[Evidence, ...]:
        """Return the executor's selected evidence; invalid indices are ignored."""
        shown = self.evidence(asked)
        return tuple(shown[index] for index in asked.selected if 0 <= index < len(shown))

    def known_candidates(self) -> list[list[str]]:
        """Return the entities that the planner may visit at each turn, and after the last step."""
        known = [list(self.candidates)]
        for step in self.steps:
            found = [item.title for asked in step.asked for item in self.evidence_selected(asked)]
            known.append(list(dict.fromkeys([*known[-1], *found])))
        return known
