"""``hopforge explain``: its output, exit statuses and files; and a real run whose step is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.diagnosis.facts import Facts
from platform_sdk.diagnosis.redaction import redacted, without_secrets
from platform_sdk.errors import UserError
from platform_sdk.processes.peak_memory import LINE
from tests.commands import command_line
from tests.kubeflow.toy import write_toy
from tests.process_watch import wait_for

HOME = Path(__file__).parents[2]
CASES = Path(__file__).parent / "cases"


def explain(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["explain", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_output_has_the_cause_first_then_evidence_and_remedy() -> None:
    status, output = explain("--facts", CASES / "nothing_accepted.json")
    lines = output.splitlines()
    assert status == 1
    assert lines[0].startswith("runs/nothing_accepted: finished: no rollout of iteration-01 was accepted")
    assert lines[1].startswith("  evidence: iteration-01/figures.json: 0 of 16 rollouts accepted")
    assert lines[2].startswith("  remedy: ")
    assert lines[3] == "also noticed:"
    assert lines[4].startswith("- no rollout of warmup was accepted")


def test_healthy_run_exits_with_0() -> None:
    assert explain("--facts", CASES / "healthy_mygo.json") == (0, "runs/healthy_mygo: finished, nothing found\n")


def test_json_and_saved_facts_hold_the_same_as_before(tmp_path: Path) -> None:
    saved = tmp_path / "facts.json"
    status, output = explain("--facts", CASES / "full_disk.json", "--json", "--save", saved)
    assert status == 1
    assert json.loads(output)["findings"][0]["rule"] == "disk_full"
    assert json.loads(saved.read_text()) == json.loads((CASES / "full_disk.json").read_text())


def test_wrong_arguments_and_damaged_facts_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give either a run or --facts FILE"):
        explain()
    with pytest.raises(UserError, match="give either a run or --facts FILE"):
        explain("runs/x", "--facts", CASES / "full_disk.json")
    damaged = tmp_path / "facts.json"
    damaged.write_text('{"run": "r", "state": "LOST"}')
    with pytest.raises(UserError, match=r"facts\.json: state: Input should be 'PENDING'"):
        explain("--facts", damaged)


def test_no_part_of_a_secret_that_begins_with_another_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_TOKEN", "sesame-sesame")
    monkeypatch.setenv("OTHER_TOKEN", "sesame-sesame-opened")
    monkeypatch.setenv("KF_PIPELINES_COOKIES", "session-of-ann")
    monkeypatch.setenv("DB_PASSWD", "harbour-pilot")
    monkeypatch.setenv("PRIVATE_KEY", "-----BEGIN-----")
    error = "said sesame-sesame-opened, session-of-ann, harbour-pilot and -----BEGIN-----"
    assert redacted(Facts(run="r", place="local", state="FAILED", error=error)).error == "said ***, ***, *** and ***"


@pytest.mark.parametrize(
    "text",
    [
        "sampling.max_tokens: Input should be greater than 1",
        "the basic authentication failed",
        "tokenizer: gpt2",
        "max_tokens=5",
    ],
)
def test_words_that_are_no_secrets_are_shown(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "secret",
    ["hf_abcdefghijklmnop", "https://user:pass12345@host/x", "Authorization: Bearer abcdef123456",
     "authorization: Basic abcdef123456", "MLFLOW_TRACKING_PASSWORD=sesame99",
     "(b'authorization', b'Basic abcdef123456')", "API_TOKENS=abcdef123456", '"tokenSigningKey": "abcdef123456"',
     '"api_key": "k-12345678"', "AKIAABCDEFGHIJKLMNOP"],
)  # fmt: skip
def test_secrets_in_facts_are_hidden(secret: str) -> None:
    hidden = without_secrets(f"before {secret} after")
    assert "***" in hidden
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")
    assert not {"hf_abc", "pass12345", "abcdef123456", "sesame99", "k-12345678", "AKIAABC"} & {
        part for part in ("hf_abc", "pass12345", "abcdef123456", "sesame99", "k-12345678", "AKIAABC") if part in hidden
    }


@pytest.mark.slow  # a run starts in ten seconds
def test_killed_step_of_a_real_run_is_explained(tmp_path: Path) -> None:
    recipe, run_dir = write_toy(tmp_path), tmp_path / "run"
    command = command_line("run", recipe, "--workdir", run_dir, "--quiet", "--set", "mode=slow")
    with subprocess.Popen(command, cwd=HOME) as running:
        pid = run_dir / "pid"
        wait_for(lambda: pid.is_file() and pid.read_text().strip() != "")
        assert explain(run_dir) == (0, f"{run_dir}: running, nothing found\n")
        os.kill(int(pid.read_text()), signal.SIGKILL)
        assert running.wait(timeout=60) == 2
    status, output = explain(run_dir)
    assert status == 1
    assert "signal SIGKILL ended the process of step make" in output.splitlines()[0]
    assert LINE.search((run_dir / "logs/make.log").read_text().splitlines()[-1])
