"""``hopforge ask``: answer of a run's trained agent to a question, with its dialogue."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_sdk.cli.altered import AlteredOption, warn
from platform_sdk.cli.output import say, say_json, text_argument
from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import Terminal

if TYPE_CHECKING:
    from platform_sdk.methods.asking import AnswerAttempt
    from platform_sdk.records import Evidence, Rollout, Trajectory, Turn


def ask(
    run: Annotated[str, typer.Argument(help="A finished run: its directory, its name in --folder, or its MLflow id.")],
    question: Annotated[str, typer.Argument(help="The question, in quotes.")],
    temperature: Annotated[
        float, typer.Option(min=0, max=100, help="Sampling temperature; 0 is greedy decoding.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Sampling seed, if the temperature is above 0.")] = 0,
    before: Annotated[bool, typer.Option("--before", help="Use the policy before training.")] = False,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Start entity in a knowledge graph (default: entities named in the question)."
        ),
    ] = None,
    passages: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Passages for an agent without search: JSONL of title and text (default: passages of the run's "
            "corpus with the question's words).",
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    altered: AlteredOption = False,
) -> None:
    """Answer a question with the trained agent of a finished run; show its turns, searches and evidence.

    The agent, its prompts and its search are the same as in the run's last evaluation.
    """
    from platform_sdk.tracking.listing import find_run_dir

    question = text_argument(question, "the question")
    entities = tuple(text_argument(name, "--entity") for name in entity or ())
    run_dir = find_run_dir(run, folder)

    from transformers.utils import logging as transformers_logging

    from platform_sdk.methods.asking import ask as answer
    from platform_sdk.methods.finished import open_finished

    transformers_logging.disable_progress_bar()
    opened = open_finished(run_dir, before=before, altered=altered)
    warn(opened.opened.altered)
    attempt = answer(opened, question, temperature=temperature, seed=seed, entities=entities, passages=passages)
    if as_json:
        facts = {"run": str(run_dir), "before": before, "altered": opened.opened.altered}
        say_json(facts | content(attempt))
        return
    for note in attempt.notes:
        say(f"note: {note}", err=True)
    show(attempt)


def content(attempt: AnswerAttempt) -> dict[str, Any]:
    """Return an attempt as plain data; ``gold`` are the answers if the question is one of the run's."""
    rollout = attempt.rollout
    turns = [
        {"role": trajectory.role, "trajectory": trajectory.id, **turn.model_dump(mode="json", exclude={"start", "end"})}
        for trajectory, turn in in_order(rollout)
    ]
    return {
        "question": rollout.question.text,
        "answer": rollout.main.answer,
        "outcome": rollout.outcome,
        "gold": list(rollout.question.answers) if attempt.known else None,
        "turns": turns,
        "evidence": [item.model_dump(mode="json") for item in read_by(rollout)],
        "weights": rollout.weights,
        "corpus": rollout.corpus,
        "notes": list(attempt.notes),
    }


def in_order(rollout: Rollout) -> Iterator[tuple[Trajectory, Turn]]:
    """Yield every turn with its trajectory; called trajectories follow the turn that called them."""
    others = {trajectory.id: trajectory for trajectory in rollout.others}

    def turns(trajectory: Trajectory) -> Iterator[tuple[Trajectory, Turn]]:
        for turn in trajectory.turns:
            yield trajectory, turn
            for call in turn.calls:
                if call in others:
                    yield from turns(others.pop(call))

    yield from turns(rollout.main)
    for trajectory in list(others.values()):
        yield from turns(trajectory)


def read_by(rollout: Rollout) -> list[Evidence]:
    """Return the distinct pieces of evidence shown to the agents."""
    distinct = {item.id: item for _, turn in in_order(rollout) for item in turn.evidence}
    return list(distinct.values())


def show(attempt: AnswerAttempt) -> None:
    """Print an attempt as a dialogue that ends with the answer."""
    from rich.padding import Padding
    from rich.text import Text

    from platform_sdk.records import SEARCH, call_text

    # Lines in a pipe or a file are not wrapped.
    console = Terminal(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 1_000_000)
    rollout = attempt.rollout
    depths = {trajectory.id: 2 for trajectory in rollout.others} | {rollout.main.id: 0}
    seen: set[str] = set()

    def write(text: Text, depth: int) -> None:
        console.print(Padding(text, (0, 0, 0, depth), expand=False))

    write(Text(rollout.question.text, style="bold"), 0)
    for trajectory, turn in in_order(rollout):
        depth = depths[trajectory.id]
        if turn.speaker == "agent":
            line = f"{trajectory.role}: {' '.join(turn.text.split())}"
            write(Text(line, style="red" if turn.malformed else ""), depth)
            if turn.malformed:
                write(Text(f"malformed: {turn.malformed}", style="red"), depth + 2)
            for call in turn.tool_calls:
                name = "searches" if call.tool == SEARCH else f"calls {call.tool}"
                write(Text(f"{name}: {call_text(call)}", style="cyan"), depth + 2)
                if call.text:
                    write(Text(f"= {' '.join(call.text.split())}", style="red" if call.error else "dim"), depth + 2)
        chosen = {item.id for index, item in enumerate(trajectory.evidence) if index in trajectory.selected}
        for item in turn.evidence:
            mark = "•" if item.id in chosen else "·"
            text = item.text if item.kind != "passage" or item.id not in seen else "(as above)"
            title = f"{item.title}: " if item.kind == "passage" and item.title else ""
            seen.add(item.id)
            write(Text(f"{mark} {title}{text}", style="dim"), depth + 2)
    answer = rollout.main.answer
    style = "bold" if answer is not None else "bold red"
    write(Text(answer if answer is not None else f"no answer ({rollout.outcome.replace('_', ' ')})", style=style), 0)
    if attempt.known:
        write(
            Text(f"(one of the run's questions; gold answer: {' or '.join(rollout.question.answers)})", style="dim"), 0
        )
