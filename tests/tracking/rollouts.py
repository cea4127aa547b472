"""Small rollouts made by hand, as a planner and two parallel workers would leave them."""

from __future__ import annotations

from platform_sdk.records import Evidence, Passage, Question, Rollout, Trajectory, Turn


def trajectory(role: str, id: str, turns: list[tuple[str, str, str | None]], **fields: object) -> Trajectory:
    """Build a trajectory whose tokens are the words of its turns."""
    built, mask = [], []
    for speaker, text, malformed in turns:
        start = len(mask)
        mask += [int(speaker == "agent")] * max(len(text.split()), 1)
        built.append(Turn(speaker=speaker, text=text, start=start, end=len(mask), malformed=malformed))  # type: ignore[arg-type]
    return Trajectory(
        role=role,  # type: ignore[arg-type]
        id=id,
        token_ids=tuple(range(len(mask))),
        agent_mask=tuple(mask),
        logprobs=(0.0,) * len(mask),
        turns=tuple(built),
        **fields,  # type: ignore[arg-type]
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
    worker_turns = [
        ("environment", "Question: Who directed it?\n[0] Blue Harbour …", None),
        ("agent", "<think>the first one</think><select>[0]</select><sentence>Anna Vey directed it.</sentence>", None),
    ]
    workers = [
        trajectory("worker", "1.0", worker_turns, evidence=found, selected=(0,), answer="Anna Vey directed it."),
        trajectory("worker", "1.1", worker_turns, evidence=found[1:], answer="Nothing relevant was found."),
        trajectory("worker", "3.0", worker_turns, evidence=found, selected=(1,), answer="Anna Vey was born in Lyon."),
    ]
    second = ("agent", "no tags at all", malformed or "a turn must begin with <think>")
    planner = trajectory(
        "planner",
        "planner",
        [
            ("environment", f"You are a planner. Question: {question.text}", None),
            ("agent", "<think>two things</think><search>Who directed it?</search><search>Which studio?</search>", None),
            ("environment", "Obs: Anna Vey directed it. Nothing relevant was found.", None),
            *([second, ("environment", "Obs: malformed", None)] if malformed else []),
            ("agent", "<think>now the birthplace</think><search>Where was Anna Vey born?</search>", None),
            ("environment", "Obs: Anna Vey was born in Lyon.", None),
            *([("agent", f"<think>done</think><answer>{answer}</answer>", None)] if answer else []),
        ],
        answer=answer,
    )
    right = answer == "Lyon"
    return Rollout(
        question=question,
        attempt=number % 3,
        seed=number,
        main=planner,
        others=tuple(workers),
        outcome="answered" if answer else "iteration_limit",
        rewards={"em": float(right), "f1": float(right) if f1 is None else f1},
        weights="w" * 64,
        corpus="c" * 64,
    )
