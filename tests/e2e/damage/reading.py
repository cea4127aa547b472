"""A finished run and every command that opens it, with the outcome of each command."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.cli.serve import of_recipe
from platform_sdk.errors import UserError
from platform_sdk.files import storage_error
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question
from platform_sdk.retrieval.service.hosting import Host
from platform_sdk.retrieval.service.metrics import Metrics
from platform_sdk.sampling.models import resolve
from platform_sdk.sampling.pairs import policy_digest
from platform_sdk.sampling.rollout import SearchRequest
from platform_sdk.studies.study import load_study
from tests.chaos.reduced import REDUCED
from tests.e2e.runs import ROOT, environment, options
from tests.sealing import sealed

LONGEST = 600.0
OPENED_WITHIN = 120.0
ALTERED = " --altered"
SEARCHES = ("mygo", "prograph", "evipath", "react")


class Subject:
    """A finished run of a method, with the commands that open it."""

    def __init__(self, method: str, folder: Path) -> None:
        self.method, self.folder, self.run_dir = method, folder, folder / method
        self.twin = folder / f"{method}-twin"  # equal results under another manifest
        if not self.twin.exists():
            shutil.copytree(self.run_dir, self.twin, symlinks=True)
            sealed(self.twin)
        self.output = folder / f"{method}-output"
        self.recipe = ROOT / "pipelines" / REDUCED[method].recipe
        self.changes = options(REDUCED[method].shorter().overrides)
        self.questions = list(read_jsonl(self.run_dir / "corpus/questions.eval.jsonl", Question))
        self.service = of_recipe(self.recipe, self.changes, self.run_dir) if method in SEARCHES else None
        self.commands = self._commands()
        self.functions: dict[str, Callable[[], str]] = {"model: run:": self._base_model}
        if self.service is not None:
            self.functions["serve retriever"] = lambda: asyncio.run(self._served())

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.commands, *self.functions)

    def outcome(self, command: str, *, real: bool = False) -> str:
        """Return "refused", "warned", a traceback, or a digest of everything that a command shows and writes.

        Args:
            real: run the command in a process, unless it is a function of the library.
        """
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.output) if self.output.is_dir() else self.output.unlink()
        if command in self.functions:
            return _called(self.functions[command])
        arguments = self.commands[command]
        return self._real(arguments) if real else self._here(arguments)

    def _commands(self) -> dict[str, tuple[str, ...]]:
        question, run, out = self.questions[0].text, str(self.run_dir), str(self.output)
        study, runs = self._study(), self.folder / f"{self.method}-runs"
        runs.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (runs / self.method).symlink_to(self.run_dir)
        gold = self.folder / f"{self.method}-gold.json"
        gold.write_text(json.dumps([
            {"_id": one.id, "question": one.text, "answer": one.answers[0], "supporting_facts": [], "context": []}
            for one in self.questions
        ]))  # fmt: skip
        predictions = str(self.run_dir / "eval-final/predictions-world.json")
        found = {
            "ask": ("ask", run, question, "--json"),
            "export": ("export", run, "-o", out),
            "evaluate": ("evaluate", run, "--dry-run", "--json"),
            "report": ("report", run, "-o", out),
            "compare": ("compare", run, str(self.twin), "--json"),
            "runs": ("runs", str(runs), "--json"),
            "study status": ("study", "status", *study, "--json"),
            "study table": ("study", "table", *study, "--json"),
            "metrics": ("metrics", "hotpotqa", "--gold", str(gold), "--predictions", predictions, "--json"),
        }
        for command in ("ask", "export", "evaluate", "report", "compare", "study table", "metrics"):
            found[command + ALTERED] = (*found[command], "--altered")
        if self.service is not None:
            changes = [part for one in self.changes for part in ("--set", one)]
            of_run = ("--recipe", str(self.recipe), *changes, "--workdir", run, "--json")
            scope = [part for key, value in self._scope().items() for part in ("--scope", f"{key}={value}")]
            found |= {"search": ("search", question, *of_run, *scope), "recall": ("recall", *of_run)}
        return found

    def _here(self, arguments: tuple[str, ...]) -> str:
        done = CliRunner().invoke(app, list(arguments))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            return _ending(done.exception)
        return self._shown(arguments, done.exit_code, done.stdout, done.stderr)

    def _real(self, arguments: tuple[str, ...]) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "platform_sdk.cli", *arguments], env=environment(), cwd=ROOT, text=True,
            capture_output=True, timeout=LONGEST, check=False,
        )  # fmt: skip
        if "Traceback" in done.stderr:
            return f"TRACEBACK {done.stderr.strip().splitlines()[-1]}"
        refused = done.returncode == 2 and len(re.findall("^error: ", done.stderr, re.MULTILINE)) == 1
        return "refused" if refused else self._shown(arguments, done.returncode, done.stdout, done.stderr)

    def _shown(self, arguments: tuple[str, ...], code: int, stdout: str, stderr: str) -> str:
        if "--altered" in arguments and "warning: " in stderr:
            return self._carried(stdout) if code == 0 else f"EXIT {code}: {stderr[-200:]}"
        # Where several runs are shown, the altered one is named and left out.
        named = "warning: " in stderr and self.method in stderr
        if named or (code == 1 and stderr.startswith("error: ")):
            return "refused"
        files = [self.output] if self.output.is_file() else sorted(self.output.rglob("*"))
        written = [(str(path), path.read_bytes()) for path in files if path.is_file()]
        return hashlib.sha256(repr((code, stdout, written)).encode()).hexdigest()

    def _carried(self, stdout: str) -> str:
        """Return "warned" if the files that were written, or else the JSON that was printed, contain the warning."""
        if self.output.is_dir():
            carried = "Warning: altered" in (self.output / "README.md").read_text()
        elif self.output.is_file():
            carried = f"Warning: {self.run_dir}" in self.output.read_text()
        else:
            carried = bool(json.loads(stdout)["altered"])
        return "warned" if carried else "NO WARNING in the output"

    def _base_model(self) -> str:
        path = resolve(f"run:{self.run_dir}")
        return f"{path} {policy_digest(path)}"

    async def _served(self) -> str:
        """Open the run's corpus as the retriever service does, and return the results of a search."""
        assert self.service is not None
        host = Host(self.service, Metrics())
        async with host.open():
            deadline = time.monotonic() + OPENED_WITHIN
            while (status := host.status).status == "loading":
                assert time.monotonic() < deadline, status
                await asyncio.sleep(0.005)
            if status.status == "failed":
                raise UserError(status.detail)
            request = SearchRequest(self.questions[0].text, self._scope())
            results = await host.collection(None, None).batcher.search([request], 3, OPENED_WITHIN)
        return str(results)

    def _study(self) -> tuple[str, ...]:
        """Write a study whose only cell is the run, linked into a folder of its own."""
        file, cells = self.folder / f"{self.method}-study.yaml", self.folder / f"{self.method}-cells"
        settings = dict(REDUCED[self.method].shorter().overrides)
        study = {
            "title": "t", "recipe": str(self.recipe), "settings": settings, "axes": {"run": {"only": {}}},
            "metrics": ["em"],
        }  # fmt: skip
        file.write_text(json.dumps(study))
        cells.mkdir(exist_ok=True)
        link = cells / load_study(file, cells).cells[0].run_dir.name
        if not link.exists():
            link.symlink_to(self.run_dir)
        return str(file), "--folder", str(cells)

    def _scope(self) -> dict[str, str]:
        if self.method != "evipath":
            return {}
        triples = (self.twin / "corpus/triples.jsonl").read_text().splitlines()
        return {"head": json.loads(triples[1])["head"]}


def _called(function: Callable[[], str]) -> str:
    """Return the outcome of a function of the library; an error that it logs with a traceback is one."""
    tracebacks: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                tracebacks.append(record.getMessage())

    handler = Heard()
    logging.getLogger().addHandler(handler)
    try:
        return hashlib.sha256(function().encode()).hexdigest()
    except Exception as error:
        return f"TRACEBACK {tracebacks[0]}" if tracebacks else _ending(error)
    finally:
        logging.getLogger().removeHandler(handler)


def _ending(error: BaseException) -> str:
    known = error if isinstance(error, UserError) else storage_error(error)
    return "refused" if known else f"TRACEBACK {type(error).__name__}: {error}"
