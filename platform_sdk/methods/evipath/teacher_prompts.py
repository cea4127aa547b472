"""Prompts of an LLM teacher, which include the answer and the gold evidence, unlike the trained agent's.

Compact prompts, for very small models, have no worked solutions: a model learns them by ``learning.teacher_prompts``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from platform_sdk.agents import planner_messages as messages
from platform_sdk.agents.planner_messages import Medium
from platform_sdk.methods.evipath import prompts
from platform_sdk.methods.evipath.demonstrations import demonstrations
from platform_sdk.methods.evipath.dialogues import Chat, planner_chat
from platform_sdk.methods.evipath.prompts import Style
from platform_sdk.methods.evipath.records import Example, SubQuestion
from platform_sdk.methods.evipath.settings import Role
from platform_sdk.tracking.outcomes import digest_of

_PLANNER = """\
You write a model solution to a complex question. You are told its answer and the evidence behind it, but you write as \
someone who finds them out step by step: never say the answer, or a fact of the evidence, before an observation says it.
Reason backwards from the answer and the evidence to the fewest sub-questions that lead there. In your first thoughts \
list them as numbered lines.
{form}"""


@dataclass(frozen=True)
class _Wording:
    """Instructions of the answerer and the thinker, and labels of the teacher's inputs."""

    answerer: str
    thinker: str
    answer: str
    evidence: str
    indices: str


_WORDINGS: Mapping[Style, _Wording] = {
    "standard": _Wording(
        answerer="""\
You answer a simple question from evidence. Write one complete declarative sentence that repeats the question's words \
and names things in full. Write nothing else.""",
        thinker="""\
You explain how the answer to a simple question is found among numbered pieces of evidence. You are told the answer \
and the indices of the evidence that gives it. Say what is asked, and what that evidence says, citing indices such as \
[0]; consider no other evidence. Write only <think>your explanation</think>.""",
        answer="Answer",
        evidence="Evidence",
        indices="Given by",
    ),
    "compact": _Wording(
        answerer="Read : answer .", thinker="Read : select .", answer="answer", evidence="facts", indices="select"
    ),
}


@dataclass(frozen=True)
class TeacherPrompts:
    """An abductive teacher's prompts for paths of an agent with these settings."""

    style: Style
    medium: Medium
    max_questions: int

    @property
    def planner_system(self) -> str:
        """Instruction of the planner: the trained agent's, and to reason backwards."""
        form = prompts.instruction(self.style, "planner", self.medium, max_questions=self.max_questions)
        return form if self.style == "compact" else _PLANNER.format(form=form)

    @property
    def answerer_system(self) -> str:
        """Instruction to answer a sub-question."""
        return self._wording.answerer

    @property
    def thinker_system(self) -> str:
        """Instruction to write an executor's thoughts."""
        return self._wording.thinker

    def planner_opening(self, question: str, candidates: Sequence[str], answer: str, gold: Sequence[str]) -> str:
        """Write the planner's first message."""
        opening = messages.planner_opening(question, candidates, self.medium)
        return f"{opening}\n{self._wording.answer} : {answer}\n{self._evidence(gold)}"

    def answerer_opening(self, question: str, gold: Sequence[str]) -> str:
        """Write the first message for answering a sub-question from evidence."""
        return f"Question : {question}\n{self._evidence(gold)}"

    def thinker_opening(self, question: str, evidence: str, answer: str, selected: Sequence[int]) -> str:
        """Write the first message for an executor's thoughts."""
        indices = " ".join(f"[{index}]" for index in selected)
        words = self._wording
        return f"Question : {question}\n{evidence}\n{words.answer} : {answer}\n{words.indices} : {indices}"

    def planner_examples(self) -> tuple[str, ...]:
        """Return worked solutions as previous turns."""
        return tuple(turn for example in self._worked() for turn in self._planned(example).turns)

    def answerer_examples(self) -> tuple[str, ...]:
        """Return worked sub-answers."""
        return tuple(turn for example, asked in self._asked() for turn in self._answered(example, asked))

    def thinker_examples(self) -> tuple[str, ...]:
        """Return worked explanations."""
        return tuple(turn for example, asked in self._asked() for turn in self._explained(example, asked))

    def digest(self) -> str:
        """Digest all parts of the prompts except the question."""
        return digest_of(
            self.planner_system, self.planner_examples(), self.answerer_system, self.answerer_examples(),
            self.thinker_system, self.thinker_examples(),
        )  # fmt: skip

    def chats(self, example: Example, roles: Sequence[Role]) -> Iterator[Chat]:
        """Yield the dialogues of a teacher that writes this path, for training a teacher."""
        if "planner" in roles:
            yield self._planned(example)
        for place, asked in enumerate(example.asked() if "executor" in roles else ()):
            yield Chat(f"{example.id}/answer {place}", "executor", self.answerer_system, self._answered(example, asked))
            yield Chat(
                f"{example.id}/thoughts {place}", "executor", self.thinker_system, self._explained(example, asked)
            )

    @property
    def _wording(self) -> _Wording:
        return _WORDINGS[self.style]

    def _evidence(self, gold: Sequence[str]) -> str:
        return f"{self._wording.evidence} :\n" + "\n".join(gold)

    def _worked(self) -> Sequence[Example]:
        return demonstrations(self.medium) if self.style == "standard" else ()

    def _asked(self) -> list[tuple[Example, SubQuestion]]:
        return [(example, asked) for example in self._worked() for asked in example.asked()][-2:]

    def _gold(self, example: Example) -> list[str]:
        return [messages.piece(example.pool[place], self.medium) for place in example.gold]

    def _planned(self, example: Example) -> Chat:
        _, *rest = planner_chat(example, self.style, self.max_questions).turns
        opening = self.planner_opening(example.question, example.candidates, example.answer, self._gold(example))
        return Chat(f"{example.id}/plan", "planner", self.planner_system, (opening, *rest))

    def _answered(self, example: Example, asked: SubQuestion) -> tuple[str, str]:
        return self.answerer_opening(asked.question, self._gold(example)), asked.answer

    def _explained(self, example: Example, asked: SubQuestion) -> tuple[str, str]:
        evidence = messages.materials(example.evidence(asked), self.medium)
        opening = self.thinker_opening(asked.question, evidence, asked.answer, asked.selected)
        return opening, f"<think>{asked.thoughts}</think>"
