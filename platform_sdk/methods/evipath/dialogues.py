"""Training chats of an example: one of the planner, and one of the executor for each sub-question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise, zip_longest
from random import Random
from typing import Any

from platform_sdk.agents import planner_messages as messages
from platform_sdk.methods.evipath import prompts
from platform_sdk.methods.evipath.grammar import NOTHING_FOUND, write_answer, write_ask, write_reading
from platform_sdk.methods.evipath.prompts import Style
from platform_sdk.methods.evipath.records import Example, SubQuestion
from platform_sdk.methods.evipath.settings import Role
from platform_sdk.records import Evidence, Question, Rollout, Trajectory
from platform_sdk.sampling.dialogue import Dialogue


@dataclass(frozen=True)
class Chat:
    """A dialogue to train on: ``turns`` alternate between user and assistant, beginning with the user."""

    id: str
    role: Role
    system: str
    turns: tuple[str, ...]

    @property
    def messages(self) -> list[dict[str, str]]:
        said = [(("user", "assistant")[place % 2], text) for place, text in enumerate(self.turns)]
        return [{"role": role, "content": text} for role, text in (("system", self.system), *said)]


def planner_turns(example: Example, style: Style) -> list[str]:
    """Return the planner's turns."""
    turns = []
    for place, (step, known) in enumerate(zip(example.steps, example.known_candidates(), strict=False)):
        thoughts = step.thoughts if place else prompts.first_thoughts(example.plan, step.thoughts, style)
        turns.append(write_ask(thoughts, [(_place(asked, known, example), asked.question) for asked in step.asked]))
    return [*turns, write_answer(example.thoughts, example.answer)]


def _place(asked: SubQuestion, known: Sequence[str], example: Example) -> int | None:
    if example.medium == "text":
        return None
    return known.index(asked.candidate) if asked.candidate in known else len(known)


def observations(example: Example) -> list[str]:
    """Return the planner's observation after each of its steps."""
    known = example.known_candidates()
    return [
        messages.observation(
            [asked.answer for asked in step.asked], after[len(before) :] if example.medium == "kg" else (), len(before)
        )
        for step, (before, after) in zip(example.steps, pairwise(known), strict=True)
    ]


def executor_turn(asked: SubQuestion) -> str:
    """Return the executor's turn for a sub-question."""
    return write_reading(asked.thoughts, asked.selected, asked.answer)


def planner_chat(example: Example, style: Style, max_questions: int) -> Chat:
    """Return the planner's dialogue; its prompt has only the question."""
    opening = messages.planner_opening(example.question, example.candidates, example.medium)
    said, told = planner_turns(example, style), observations(example)
    turns = [text for pair in zip_longest(said, told) for text in pair if text is not None]
    system = prompts.instruction(style, "planner", example.medium, max_questions=max_questions)
    return Chat(example.id, "planner", system, (opening, *turns))


def executor_chats(example: Example, style: Style) -> Iterator[Chat]:
    """Yield a dialogue for each sub-question, with the ids of the agent's trajectories."""
    system = prompts.instruction(style, "executor", example.medium, max_questions=1)
    for place, step in enumerate(example.steps):
        for number, asked in enumerate(step.asked):
            opening = messages.worker_opening(asked.question, example.evidence(asked), example.medium)
            yield Chat(f"{example.id}/{place}.{number}", "executor", system, (opening, executor_turn(asked)))


def unanswerable_chats(example: Example, style: Style, share: float) -> Iterator[tuple[Chat, tuple[Evidence, ...]]]:
    """Yield an executor's dialogue without gold evidence, and its evidence, for a share of the sub-questions.

    The executor gets other evidence and replies that nothing was found. Further pieces of the pool replace the gold
    ones: with fewer pieces than in other dialogues, a model would learn to count them, and to report nothing wherever a
    search finds few. The choice of sub-questions depends on the example alone; a larger share contains the choice of a
    smaller one. A sub-question with gold evidence only has no such dialogue.
    """
    system = prompts.instruction(style, "executor", example.medium, max_questions=1)
    for place, step in enumerate(example.steps):
        for number, asked in enumerate(step.asked):
            id = f"{example.id}/{place}.{number}"
            kept = [place for place in asked.shown if place not in example.gold]
            drawn = int.from_bytes(sha256(id.encode()).digest()[:8], "big") / 2**64
            if kept and drawn < share:
                spare = [place for place in range(len(example.pool)) if place not in (*asked.shown, *example.gold)]
                Random(id).shuffle(spare)
                places = sorted([*kept, *spare[: len(asked.shown) - len(kept)]])
                shown = tuple(example.pool[place] for place in places)
                opening = messages.worker_opening(asked.question, shown, example.medium)
                yield Chat(f"{id}/unanswerable", "executor", system, (opening, NOTHING_FOUND)), shown


def chats(example: Example, style: Style, max_questions: int, roles: Sequence[Role]) -> list[Chat]:
    """Return the dialogues of these roles."""
    planner = [planner_chat(example, style, max_questions)] if "planner" in roles else []
    return [*planner, *(executor_chats(example, style) if "executor" in roles else ())]


def trajectories(example: Example, style: Style, max_questions: int, tokenizer: Any) -> tuple[Trajectory, ...]:
    """Return the trajectories of the planner and its executors as recorded by the agent."""
    chat = planner_chat(example, style, max_questions)
    workers = []
    planner = Dialogue(tokenizer, chat.system, chat.turns[0])
    executors = iter(executor_chats(example, style))
    for place, step in enumerate(example.steps):
        planner.recite(chat.turns[2 * place + 1])
        calls = [f"{place}.{number}" for number in range(len(step.asked))]
        planner.note_asked([asked.question for asked in step.asked], calls)
        planner.tell(chat.turns[2 * place + 2])
        for asked, id in zip(step.asked, calls, strict=True):
            own = next(executors)
            worker = Dialogue(tokenizer, own.system, own.turns[0], evidence=_unscored(example.evidence(asked)))
            worker.recite(own.turns[1])
            workers.append(worker.trajectory(id, "worker", selected=asked.selected, answer=asked.answer))
    planner.recite(chat.turns[-1])
    return planner.trajectory("planner", "planner", answer=example.answer), *workers


def _unscored(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    return tuple(item.model_copy(update={"score": 0.0}) for item in evidence)


def rollouts(
    example: Example,
    question: Question,
    style: Style,
    max_questions: int,
    roles: Sequence[Role],
    unanswerable: float,
    tokenizer: Any,
    weights: str,
    corpus: str,
    teacher_chats: Sequence[Chat] = (),
) -> list[Rollout]:
    """Return an example's training dialogues as rollouts; no policy sampled them.

    Without the planner each executor is a separate rollout, since a rollout's main trajectory is always trained on; so
    is an executor without gold evidence, whose answer no planner got, and each dialogue of ``teacher_chats``.
    """
    planner, *workers = trajectories(example, style, max_questions, tokenizer)
    alone = [
        _without_gold(chat, shown, tokenizer)
        for chat, shown in (unanswerable_chats(example, style, unanswerable) if "executor" in roles else ())
    ]
    alone += [_teacher_trajectory(chat, tokenizer, example.answer) for chat in teacher_chats]
    shared: dict[str, Any] = {
        "question": question, "seed": 0, "outcome": "answered", "weights": weights, "corpus": corpus
    }  # fmt: skip
    if "planner" not in roles:
        return [Rollout(attempt=place, main=worker, **shared) for place, worker in enumerate((*workers, *alone))]
    if "executor" not in roles:
        workers = [worker.model_copy(update={"use": "scoring"}) for worker in workers]
    planned = Rollout(attempt=0, main=planner, others=tuple(workers), **shared)
    return [planned, *(Rollout(attempt=place, main=main, **shared) for place, main in enumerate(alone, start=1))]


def _teacher_trajectory(chat: Chat, tokenizer: Any, answer: str) -> Trajectory:
    """Return a teacher's dialogue as a trajectory without calls; ``answer`` is the planner's."""
    dialogue = Dialogue(tokenizer, chat.system, chat.turns[0])
    dialogue.recite(chat.turns[1])
    for observation, reply in zip(chat.turns[2::2], chat.turns[3::2], strict=True):
        dialogue.tell(observation)
        dialogue.recite(reply)
    if chat.role == "planner":
        return dialogue.trajectory("planner", "planner", answer=answer)
    return dialogue.trajectory("worker", "worker")


def _without_gold(chat: Chat, shown: Sequence[Evidence], tokenizer: Any) -> Trajectory:
    worker = Dialogue(tokenizer, chat.system, chat.turns[0], evidence=_unscored(shown))
    worker.recite(chat.turns[1])
    return worker.trajectory("worker", "worker", answer=NOTHING_FOUND)
