"""Rewards of responses of other systems: an official question file and a file of responses in, rewards out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from platform_sdk.config.errors import UserError
from platform_sdk.data.detect import distractor_format
from platform_sdk.data.files import check, lines_of, parse_loose, read_bytes
from platform_sdk.data.questions import load_questions
from platform_sdk.display import shortened
from platform_sdk.methods.arena.grammar import parse, without_thoughts
from platform_sdk.methods.arena.rewards import judged, rewards
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.record_files import RecordError
from platform_sdk.records import Question, Rollout, Trajectory, Turn

COMPONENTS = ("format", "accuracy", "relevance", "bonus")


class ResponseLine(msgspec.Struct):
    """A line of a file of responses; other fields are ignored."""

    id: str
    response: str


def score_file(spec: AgentSpec, gold: Path, responses: Path) -> list[dict[str, str | float]]:
    """Return the rewards of each response in the file's order: ``id``, the components, own rewards, ``reward``.

    Passages are numbered from 1 in the official file's order.

    Args:
        gold: an official question file of HotpotQA, 2WikiMultihopQA or MuSiQue, with its passages.
        responses: JSONL of ``id`` and ``response``.

    Raises:
        RecordError: a file is malformed, or an id is unknown or repeated; the message names file and line.
        UserError: a question has no passages that the response could name, or the judge cannot be reached.
    """
    questions = {question.id: question for question in load_questions(gold, distractor_format(gold)).questions}
    rollouts = [_rollout(question, text, spec) for question, text in _read(responses, gold, questions, spec)]
    if spec.rewards.judge is None:
        scored = [rewards(rollout, spec) for rollout in rollouts]
    else:
        from platform_sdk.evaluation.judge import Judge

        with Judge(spec.rewards.judge) as judge:
            scored = [rollout.rewards for rollout in judged(rollouts, spec, judge)]
    names = (*COMPONENTS, *spec.rewards.extra, "reward")
    return [
        {"id": rollout.question.id} | {name: values[name] for name in names}
        for rollout, values in zip(rollouts, scored, strict=True)
    ]


def _read(path: Path, gold: Path, questions: dict[str, Question], spec: AgentSpec) -> Iterator[tuple[Question, str]]:
    first: dict[str, int] = {}
    for number, line in lines_of(read_bytes(path)):
        where = f"{path}:{number}"
        try:
            found = check(path, "line: ", parse_loose(path, line, "line: "), ResponseLine)
        except RecordError as error:
            message = str(error).removeprefix(f"{path}: line: ")
            raise RecordError(f'{where}: {message}; a line is {{"id": "…", "response": "…"}}') from error
        if found.id in first:
            raise RecordError(f"{where}: id {shortened(found.id)} has a response already, on line {first[found.id]}")
        if found.id not in questions:
            raise RecordError(f"{where}: id {shortened(found.id)} is not in {gold}")
        try:
            found.response.encode()
        except UnicodeEncodeError as error:
            raise RecordError(f"{where}: response: contains a lone surrogate; replace it") from error
        first[found.id] = number
        question = questions[found.id]
        if spec.form == "three_part" and not question.context:
            raise UserError(f"{gold}: question {question.id} has no passages, so that relevance cannot be scored")
        yield question, found.response


def _rollout(question: Question, text: str, spec: AgentSpec) -> Rollout:
    """Return a response as a rollout without tokens."""
    answer = parse(without_thoughts(text, spec.form), spec.form).answer
    turn = Turn(speaker="agent", text=text, start=0, end=0)
    trajectory = Trajectory(
        role="agent", id="agent", token_ids=(), agent_mask=(), logprobs=(), turns=(turn,), answer=answer
    )
    outcome = "iteration_limit" if answer is None else "answered"
    return Rollout(question=question, attempt=0, seed=0, main=trajectory, outcome=outcome, weights="", corpus="")
