"""Random damage to finished runs and random command lines, drawn by hypothesis.

``python -m tests.fuzz.attacks --runs DIR`` does the same to runs of whole recipes.
"""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.files import storage_error
from tests.e2e.runs import ROOT
from tests.fuzz.attacks import alterations, commands
from tests.methods.finished_run import finished_run

RANDOM = st.randoms(use_true_random=False)
WORLD = "pipelines/mygo/world.yaml"


def drawn_examples(number: int) -> settings:
    return settings(
        max_examples=number, derandomize=True, deadline=None, database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )  # fmt: skip


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory.mktemp("runs"), "arena")


def attack_run(run_dir: Path, drawn: Random) -> None:
    assert list(alterations(run_dir, 1, drawn)) == []


def attack_command(run_dir: Path, drawn: Random) -> None:
    with tempfile.TemporaryDirectory(prefix="hopforge-attacks-") as folder:
        assert list(commands(run_dir, 1, drawn, Path(folder))) == []


@given(drawn=RANDOM)
@drawn_examples(100)
def test_randomly_altered_run_is_refused(arena: Path, drawn: Random) -> None:
    attack_run(arena, drawn)


@given(drawn=RANDOM)
@drawn_examples(5)
def test_random_command_line_ends_without_a_traceback(arena: Path, drawn: Random) -> None:
    attack_command(arena, drawn)


@pytest.mark.slow
@given(drawn=RANDOM)
@drawn_examples(1000)
def test_thousand_randomly_altered_runs_are_refused(arena: Path, drawn: Random) -> None:
    attack_run(arena, drawn)


@pytest.mark.slow
@given(drawn=RANDOM)
@drawn_examples(1000)
def test_thousand_random_command_lines_end_without_a_traceback(arena: Path, drawn: Random) -> None:
    attack_command(arena, drawn)


@pytest.mark.parametrize(
    "arguments",
    [
        lambda run: ("compile", WORLD),
        lambda run: ("report", run),
        lambda run: ("compare", run, run),
        lambda run: ("export", run),
        lambda run: ("export", run, "--format", "messages"),
        lambda run: ("convert", ROOT / "README.md", "--from", "hotpotqa"),
        lambda run: ("study", "table", "studies/world-mygo.yaml", "--format", "csv"),
        lambda run: ("graph", "export", "--recipe", WORLD, "--workdir", run),
        lambda run: ("graph", "show", "x", "--recipe", WORLD, "--workdir", run),
    ],
)
def test_full_device_as_output_is_one_error(
    arguments: Callable[[Path], tuple[object, ...]], arena: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, [*map(str, arguments(arena)), "-o", "/dev/full"])
    assert isinstance(done.exception, UserError) or (done.exception and storage_error(done.exception)), done.exception
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
