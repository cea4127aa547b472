"""The command ``hopforge``, in a process of its own and in this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner, Result

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from tests.e2e.runs import ROOT, environment, steps_here


def command_line(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "platform_sdk.cli", *map(str, arguments)]


def hopforge(*arguments: object, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does; ``variables`` are added to its environment."""
    return subprocess.run(
        command_line(*arguments), cwd=cwd, env=environment() | variables, capture_output=True, text=True, timeout=600
    )


def succeed(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command, which must end well and without a traceback."""
    done = hopforge(*arguments, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def succeed_here(*arguments: object) -> Result:
    """Run the command with its steps in this process; it must end well and without a traceback."""
    with steps_here():
        done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "Traceback" not in done.stderr
    return done


def refusal(*arguments: object) -> str:
    """Return the one error that the command ends with, in this process."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert isinstance(done.exception, UserError), (done.exception, done.output)
    return str(done.exception)
