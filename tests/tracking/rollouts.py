"""Small rollouts made by hand, as a planner and two parallel workers would leave them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from platform_sdk.records import Evidence, Passage, Question, Rollout, Trajectory, Turn


def environment(text: str, *evidence: Evidence) -> Turn:
    return Turn(speaker="environment", text=text, start=0, end=0, evidence=evidence)


def agent(
    text: str, malformed: str | None = None, *, queries: tuple[str, ...] = (), calls: tuple[str, ...] = ()
) -> Turn:
    return Turn(speaker="agent", text=text, start=0, end=0, malformed=malformed, queries=queries, calls=calls)


def trajectory(role: str, id: str, turns: Iterable[Turn], **fields: Any) -> Trajectory:
    """Build a trajectory whose tokens are the words of its turns."""
    built: list[Turn] = []
    mask: list[int] = []
    for turn in turns:
        start = len(mask)
        mask += [int(turn.speaker == "agent")] * max(len(turn.text.split()), 1)
        built.append(turn.model_copy(update={"start": start, "end": len(mask)}))
    return Trajectory(
        role=role,
        id=id,
        token_ids=tuple(range(len(mask))),
        agent_mask=tuple(mask),
        logprobs=(0.0,) * len(mask),
        turns=tuple(built),
        **fields,
    )


def evidence(number: int, title: str, text: str) -> Evidence:
    return Evidence(kind="passage", id=f"p{number}", title=title, text=text, score=0.9 - 0.1 * number)


def rollout(
    number: int = 0,
    *,
    answer: str | None = "Lyon",
    text: str | None = None,
    malformed: str | None = None,
    hostile: str = "",
    f1: float | None = None,
) -> Rollout:
    """A question about two films, two sub-questions asked at once, one more after them, then the answer."""
    question = Question(
        id=f"q{number}",
        text=text or f"Which city is the birthplace of the director of film {number}?{hostile}",
        answers=("Lyon", "Lyons"),
        dataset="world",
        type="bridge",
        hops=2,
        gold_passages=("Blue Harbour", "Anna Vey"),
        context=(Passage(id="c", title="Blue Harbour", text="A film."),),
    )
    found = (
        evidence(0, "Blue Harbour", f"Blue Harbour is a film directed by Anna Vey.{hostile}"),
        evidence(1, "Red Harbour", "Red Harbour is a film directed by Tom Oak."),
    )

    def worker(id: str, shown: tuple[Evidence, ...], **fields: Any) -> Trajectory:
        turns = [
            environment("Question: Who directed it?\n[0] Blue Harbour …", *shown),
            agent("<think>the first one</think><select>[0]</select><sentence>Anna Vey directed it.</sentence>"),
        ]
        return trajectory("worker", id, turns, **fields)

    first = agent(
        "<think>two things</think><search>Who directed it?</search><search>Which studio?</search>",
        queries=("Who directed it?", "Which studio?"),
        calls=("1.0", "1.1"),
    )
    third = agent(
        "<think>now the birthplace</think><search>Where was Anna Vey born?</search>",
        queries=("Where was Anna Vey born?",),
        calls=("3.0",),
    )
    planner = trajectory(
        "planner",
        "planner",
        [
            environment(f"You are a planner. Question: {question.text}"),
            first,
            environment("Obs: Anna Vey directed it. Nothing relevant was found."),
            *([agent("no tags at all", malformed), environment("Obs: malformed")] if malformed else []),
            third,
            environment("Obs: Anna Vey was born in Lyon."),
            *([agent(f"<think>done</think><answer>{answer}</answer>")] if answer else []),
        ],
        answer=answer,
    )
    right = answer == "Lyon"
    return Rollout(
        question=question,
        attempt=number % 3,
        seed=number,
        main=planner,
        others=(
            worker("1.0", found, selected=(0,), answer="Anna Vey directed it."),
            worker("1.1", found[1:], answer="Nothing relevant was found."),
            worker("3.0", found, selected=(1,), answer="Anna Vey was born in Lyon."),
        ),
        outcome="answered" if answer else "iteration_limit",
        rewards={"em": float(right), "f1": float(right) if f1 is None else f1},
        weights="w" * 64,
        corpus="c" * 64,
    )
