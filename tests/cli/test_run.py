"""The commands on the toy pipeline, each in a process of its own, as a user calls them."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from kfp import components

from platform_sdk.cli.output import say_json
from tests.commands import hopforge
from tests.e2e.runs import ROOT
from tests.kubeflow.toy import write_toy


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_toy(tmp_path)


def test_failed_run_resumes_and_another_recipe_is_refused(recipe: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    failed = hopforge("run", recipe, "--workdir", run_dir, "--set", "mode=user-error")
    assert failed.returncode == 2
    assert "✗ 1/4  make" in failed.stdout
    assert failed.stderr.startswith("error: step make failed: the data are wrong;\nmend them\n(full log: ")
    other = hopforge("run", recipe, "--workdir", run_dir)
    assert other.returncode == 2
    assert 'parameters.mode: "user-error" → "well"' in other.stderr
    left = tmp_path / "other" / "warmup" / ".sample.json.host.7.tmp"  # by a process that was killed
    left.parent.mkdir(parents=True)
    left.touch()
    done = hopforge("run", recipe, "--workdir", tmp_path / "other")
    assert done.returncode == 0, done.stderr
    assert not left.exists()
    logged = hopforge("logs", tmp_path / "other", "make").stdout
    assert logged == "making data\n"
    assert all(f"[{step}] " in hopforge("logs", tmp_path / "other").stdout for step in ("make",))
    unknown = hopforge("logs", tmp_path / "other", "mak", "--follow")
    assert (unknown.returncode, "step 'mak' has no log; did you mean" in unknown.stderr) == (2, True), unknown.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[2] for line in lines if line.startswith("✓")] == ["make", "use-01", "use-02", "last"]
    assert f"mlflow ui --backend-store-uri sqlite:///{tmp_path}/mlflow.db" in done.stdout
    assert json.loads((tmp_path / "other" / "recipe.json").read_text())["parameters"]["rate"] == 0.5
    runs = json.loads(hopforge("runs", tmp_path, "--json").stdout)
    assert {run["name"]: run["status"] for run in runs} == {"run": "FAILED", "other": "FINISHED"}


def test_a_dry_run_shows_the_steps_and_leaves_nothing(recipe: Path, tmp_path: Path) -> None:
    done = hopforge("run", recipe, "--workdir", tmp_path / "run", "--dry-run", "--json")
    plan = json.loads(done.stdout)
    assert [step["step"] for step in plan["steps"]] == ["make", "use-01", "use-02", "last"]
    assert not (tmp_path / "run").exists()


def test_json_is_all_of_standard_output_and_quiet_prints_nothing(recipe: Path, tmp_path: Path) -> None:
    done = hopforge("run", recipe, "--workdir", tmp_path / "run", "--json", "--set", "iterations=0")
    found = json.loads(done.stdout)
    assert (found["run_dir"], found["finished_before"]) == (str(tmp_path / "run"), False)
    assert "✓ 2/2  last" in done.stderr
    quiet = hopforge("run", recipe, "--workdir", tmp_path / "quiet", "--quiet", "--set", "iterations=0")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


def test_workdir_that_cannot_be_a_directory_is_refused(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, told in (("file", "is a file"), ("file/run", "cannot be read or written")):
        refused = hopforge("run", recipe, "--workdir", tmp_path / place)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert f"error: {tmp_path / place}: {told}" in refused.stderr


def test_port_in_use_is_reported_before_any_preparation(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        options = ("--recipe", ROOT / "pipelines/mygo/world.yaml", "--workdir", tmp_path / "run", "--port", port)
        refused = hopforge("serve", "retriever", *options)
    assert (refused.returncode, refused.stdout) == (2, "")
    [line] = refused.stderr.splitlines()
    assert f"127.0.0.1, port {port}: Address already in use" in line
    assert line.endswith("[serve.port-in-use]")
    assert not (tmp_path / "run").exists()


def test_version_and_help(tmp_path: Path) -> None:
    assert hopforge("--version").stdout.startswith("hopforge 0.")
    for command in ((), ("run",), ("graph", "build"), ("serve", "retriever")):
        told = hopforge(*command, "--help").stdout
        assert "<bool>" not in told
        assert "Show this message and exit." in told
    assert "{metric: [low, high]}" in hopforge("metrics", "--help").stdout.replace("\n", " ")


def test_compile_command_writes_a_kfp_pipeline(recipe: Path, tmp_path: Path) -> None:
    done = hopforge("compile", recipe, "-o", tmp_path / "ir.yaml", "--set", "iterations=3")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/ir.yaml: 5 tasks\n")
    assert components.load_component_from_file(str(tmp_path / "ir.yaml"))


def test_validate_command_prints_ok_or_every_problem(recipe: Path) -> None:
    good = hopforge("validate", recipe)
    assert (good.returncode, good.stdout) == (0, f"{recipe}: ok (toy, 4 tasks)\n")
    assert json.loads(hopforge("validate", recipe, "--json").stdout)["parameters"]["iterations"] == 2
    bad = hopforge("validate", recipe, "--set", "rate=2", "--set", "sede=1")
    assert bad.returncode == 2
    assert bad.stderr.splitlines() == [
        "error: 2 problems",
        "--set sede=1: sede: there is no such parameter; did you mean seed? "
        "known are iterations, mode, overlap, rate, seed, spec [recipe.unknown-parameter]",
        "--set rate=2: rate: must be at most 1, but is 2",
    ]


def test_schema_command_prints_recipe_and_pipeline_schemas(recipe: Path) -> None:
    schema = json.loads(hopforge("schema", recipe.parent / "pipeline.yaml").stdout)
    assert schema["title"] == "Recipe of toy"
    assert "steps" in json.loads(hopforge("schema").stdout)["properties"]


def test_unknown_option_is_reported(recipe: Path) -> None:
    done = hopforge("run", recipe, "--sett", "a=b")
    assert done.returncode == 2
    assert "No such option" in done.stderr


def test_json_output_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say_json({"text": "it\x92s a \x85 \x9b31m test\u202e"})
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert json.loads(shown) == {"text": "it\x92s a \x85 \x9b31m test\u202e"}
    say_json({"url": "http://ann:secret@host/"})
    assert json.loads(capsys.readouterr().out) == {"url": "http://***@host/"}
