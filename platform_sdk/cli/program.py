"""``hopforge program``: check of a recipe whose agent is a program of the user's."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.application import Application
from platform_sdk.cli.output import say, say_json, text_argument
from platform_sdk.cli.run import RecipeArgument, SetOption
from platform_sdk.cli.search import check_same_data
from platform_sdk.config.source import ConfigError

if TYPE_CHECKING:
    from platform_sdk.methods.program.check import ProgramCheck

program = Application(help="Check programs that recipes of the pipeline program train.", no_args_is_help=True)


@program.callback()
def _group() -> None: ...


@program.command("check")
def check(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    question: Annotated[str | None, typer.Option(help="The question (default: the first for evaluation).")] = None,
    workdir: Annotated[
        Path | None,
        typer.Option(help="Folder for corpus and index, which a later check uses again (default: a temporary one)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run one session of a recipe's program with the untrained policy; show its calls, threads, searches and answer.

    Problems that would keep the policy from learning end the command with exit status 1.
    """
    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.methods.faults import errors
    from platform_sdk.methods.program.check import check as run_session
    from platform_sdk.methods.requirements import missing_here

    text = None if question is None else text_argument(question, "--question")
    loaded = load_recipe(recipe, overrides or ())
    if found := [*errors(loaded), *missing_here(loaded)]:
        raise ConfigError(found)

    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    with ExitStack() as opened:
        folder = workdir or Path(opened.enter_context(TemporaryDirectory(prefix="hopforge-check-")))
        check_same_data(loaded, folder)
        session = run_session(loaded, folder, text)
    if as_json:
        say_json({"recipe": str(loaded.path)} | session.facts(), indent=1)
    else:
        show(session)
    if session.problems:
        raise typer.Exit(1)


def show(session: ProgramCheck) -> None:
    """Print a session: its calls by thread, and what to change."""
    from rich.text import Text

    from platform_sdk.cli.terminal import Terminal
    from platform_sdk.display import shortened
    from platform_sdk.methods.program.check import threads
    from platform_sdk.records import SEARCH, call_text

    console = Terminal(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 1_000_000)
    rollout, facts = session.rollout, session.facts()
    for note in session.notes:
        say(f"note: {note}", err=True)
    console.print(Text(rollout.question.text, style="bold"))
    for number, (reason, trajectory) in enumerate(threads(rollout), start=1):
        turns = trajectory.agent_turns
        console.print(Text(f"thread {number} ({reason}), calls: {len(turns)}", style="bold"))
        for turn in turns:
            sizes = f"{turn.start} tokens read, {turn.end - turn.start} sampled"
            console.print(Text(f"  {sizes}: {shortened(' '.join(turn.text.split()), 200)}"))
            for call in turn.tool_calls:
                name, result = f"calls {call.tool}", f" = {shortened(call.text, 100)}"
                if call.tool == SEARCH:
                    name, result = "searches", f" ({len(call.evidence)} results)"
                console.print(Text(f"    {name}: {call_text(call)}{result}", style="cyan"))
    if rollout.program is not None and rollout.program.stderr.strip():
        console.print(Text(f"standard error:\n{rollout.program.stderr.rstrip()}", style="dim"))
    answer = facts["answer"] if facts["answer"] is not None else f"none ({rollout.outcome.replace('_', ' ')})"
    console.print(
        Text(
            f"answer: {answer}\n{facts['calls']} calls in {len(facts['threads'])} threads, "
            f"{facts['searches']} searches, {facts['tokens']} tokens to train on, {session.seconds:.1f} s"
        )
    )
    for problem in session.problems:
        console.print(Text(f"problem: {problem}", style="red"))
    for warning in session.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    if not session.problems and not session.warnings:
        console.print(Text("nothing found that would harm training", style="green"))
