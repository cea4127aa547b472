"""``hopforge ask``: the trained agent of a run answers a question, and shows how."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_sdk.cli.altered import AlteredOption, warn
from platform_sdk.cli.output import say, text_argument
from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import Terminal

if TYPE_CHECKING:
    from platform_sdk.methods.asking import AnswerAttempt
    from platform_sdk.records import Evidence, Rollout, Trajectory, Turn


def ask(
    run: Annotated[str, typer.Argument(help="A finished run: its directory, its name in --folder, or its MLflow id.")],
    question: Annotated[str, typer.Argument(help="The question, in quotes.")],
    temperature: Annotated[
        float, typer.Option(min=0, max=100, help="Randomness of the answer; 0 takes the most probable tokens.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another answer, if the temperature is above 0.")] = 0,
    before: Annotated[bool, typer.Option("--before", help="Ask the policy that training began with.")] = False,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="In a knowledge graph, where to start; entities that the question names if not given."
        ),
    ] = None,
    passages: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What an agent that searches nothing reads: JSONL of title and text; passages of the run's corpus "
            "with the question's words if not given.",
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder that holds the run directories.")] = RUNS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    altered: AlteredOption = False,
) -> None:
    """Let the trained agent of a finished run answer a question; show its turns, its searches and what it read.

    The agent, its prompts and its search are those of the run's last evaluation.
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
    asked = answer(opened, question, temperature=temperature, seed=seed, entities=entities, passages=passages)
    if as_json:
        facts = {"run": str(run_dir), "before": before, "altered": opened.opened.altered}
        say(json.dumps(facts | content(asked), ensure_ascii=False))
        return
    for note in asked.notes:
        say(f"note: {note}", err=True)
    show(asked)


def content(asked: AnswerAttempt) -> dict[str, Any]:
    """Return what was asked and answered as plain data; ``gold`` are the answers of one of the run's own questions."""
    rollout = asked.rollout
    turns = [
        {"role": trajectory.role, "trajectory": trajectory.id, **turn.model_dump(mode="json", exclude={"start", "end"})}
        for trajectory, turn in in_order(rollout)
    ]
    return {
        "question": rollout.question.text,
        "answer": rollout.main.answer,
        "outcome": rollout.outcome,
        "gold": list(rollout.question.answers) if asked.known else None,
        "turns": turns,
        "evidence": [item.model_dump(mode="json") for item in read_by(rollout)],
        "weights": rollout.weights,
        "corpus": rollout.corpus,
        "notes": list(asked.notes),
    }


def in_order(rollout: Rollout) -> Iterator[tuple[Trajectory, Turn]]:
    """Yield every turn with its trajectory; those that a turn called come behind it."""
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
    """Return every piece of evidence that was read, once."""
    found = {item.id: item for _, turn in in_order(rollout) for item in turn.evidence}
    return list(found.values())


def show(asked: AnswerAttempt) -> None:
    """Print an attempt as a dialogue, with the answer at its end."""
    from rich.padding import Padding
    from rich.text import Text

    from platform_sdk.records import SEARCH, call_text

    # What reads a pipe or a file wants whole lines.
    console = Terminal(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 1_000_000)
    rollout = asked.rollout
    depths = {trajectory.id: 2 for trajectory in rollout.others} | {rollout.main.id: 0}
    seen: set[str] = set()

    def tell(text: Text, depth: int) -> None:
        console.print(Padding(text, (0, 0, 0, depth), expand=False))

    tell(Text(rollout.question.text, style="bold"), 0)
    for trajectory, turn in in_order(rollout):
        depth = depths[trajectory.id]
        if turn.speaker == "agent":
            said = f"{trajectory.role}: {' '.join(turn.text.split())}"
            tell(Text(said, style="red" if turn.malformed else ""), depth)
            if turn.malformed:
                tell(Text(f"malformed: {turn.malformed}", style="red"), depth + 2)
            for call in turn.tool_calls:
                name = "searches" if call.tool == SEARCH else f"calls {call.tool}"
                tell(Text(f"{name}: {call_text(call)}", style="cyan"), depth + 2)
                if call.text:
                    tell(Text(f"= {' '.join(call.text.split())}", style="red" if call.error else "dim"), depth + 2)
        chosen = {item.id for place, item in enumerate(trajectory.evidence) if place in trajectory.selected}
        for item in turn.evidence:
            mark = "•" if item.id in chosen else "·"
            text = item.text if item.kind != "passage" or item.id not in seen else "(as above)"
            title = f"{item.title}: " if item.kind == "passage" and item.title else ""
            seen.add(item.id)
            tell(Text(f"{mark} {title}{text}", style="dim"), depth + 2)
    answer = rollout.main.answer
    style = "bold" if answer is not None else "bold red"
    tell(Text(answer if answer is not None else f"no answer ({rollout.outcome.replace('_', ' ')})", style=style), 0)
    if asked.known:
        tell(Text(f"(one of the run's questions; right is: {' or '.join(rollout.question.answers)})", style="dim"), 0)
