"""Arguments, files and terminals that a command must answer with one error, without a traceback and without a hang."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.files import open_regular, writing
from platform_sdk.outputs import write_output
from tests.commands import refusal
from tests.process_watch import free_port
from tests.sealing import sealed

HOME = Path(__file__).parents[2]
WORLD = "pipelines/mygo/world.yaml"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


def hand_made_run(folder: Path, name: str = "run") -> Path:
    run_dir = folder / name
    run_dir.mkdir()
    (run_dir / "recipe.json").write_text(json.dumps({"name": "näme", "pipeline": "p", "parameters": {}}))
    return sealed(run_dir)


def test_report_written_to_a_pipe_goes_through_it(tmp_path: Path) -> None:
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    done = CliRunner().invoke(app, ["report", str(hand_made_run(tmp_path)), "-o", str(pipe)])
    reader.join(timeout=60)
    assert done.exit_code == 0, done.exception
    assert received[0].startswith(b"<!doctype html>")
    assert stat.S_ISFIFO(pipe.stat().st_mode), "the pipe was replaced by a file"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_device_is_written_and_never_replaced(tmp_path: Path) -> None:
    device = tmp_path / "full"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        device.open("wb").close()
    except OSError:
        pytest.skip("this file system has no devices")
    with pytest.raises(OSError, match="No space left"):
        write_output(device, "text")
    with pytest.raises(UserError, match="is a directory or a device"), writing(device):
        pass
    assert stat.S_ISCHR(device.stat().st_mode)


def test_link_named_as_output_keeps_leading_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_output(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize(
    ("name", "fault"),
    [("a\x1b[31m", "cannot be shown"), ("a\nb", "cannot be shown"), ("missing/page.html", "does not exist"),
     ("", "is a directory")],
)  # fmt: skip
def test_output_that_cannot_be_meant_is_refused_before_the_work(name: str, fault: str, tmp_path: Path) -> None:
    output = tmp_path / name
    for command in (("report", "nothing"), ("compile", WORLD), ("compare", "a", "b"), ("study", "table", "x.yaml")):
        assert fault in refusal(*command, "-o", output)
    assert list(tmp_path.iterdir()) == []


def test_retriever_of_a_recipe_that_searches_nothing_is_refused() -> None:
    told = refusal("serve", "retriever", "--recipe", "pipelines/arena/world.yaml", "--port", 0)
    assert told == "pipelines/arena/world.yaml: the agents of method arena do not search"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--config", "x.yaml", "--set", "a=1"), "--set and --workdir change a recipe"),
        (("--config", "x.yaml", "--workdir", "."), "--set and --workdir change a recipe"),
        (("--config", "x.yaml", "--tokens", ".", "--host", "a..b"), "cannot listen on a..b: no such host"),
        (("--config", "x.yaml", "--tokens", ".", "--host", "203.0.113.7"), "it is not an address of this machine"),
    ],
)
def test_options_of_the_retriever_that_cannot_work_are_refused(options: tuple[str, ...], reason: str) -> None:
    assert reason in refusal("serve", "retriever", "--port", 0, *options)


def test_collection_of_a_team_needs_tokens(tmp_path: Path) -> None:
    config = tmp_path / "service.yaml"
    config.write_text("collections: [{name: a, run_dir: a, environment: hotpot, teams: [red]}]")
    told = refusal("serve", "retriever", "--config", config, "--port", 0)
    assert told.startswith("without --tokens, nobody can search a, whose teams are set: add --tokens DIR, or remove")


def test_equal_ports_of_the_retriever_are_refused() -> None:
    port = free_port()
    refused = refusal("serve", "retriever", "--config", "x.yaml", "--port", port, "--metrics-port", port)
    assert f"--port and --metrics-port are both {port}; choose two ports" in refused


@pytest.mark.parametrize(
    "command",
    [
        ("validate", "FILE"), ("compile", "FILE", "-o", "out.yaml"), ("study", "status", "FILE"),
        ("metrics", "hotpotqa", "--gold", "FILE", "--predictions", "FILE"),
        ("metrics", "nq", "--gold", "FILE", "--predictions", "FILE"),
        ("score", "--recipe", "pipelines/arena/world.yaml", "--gold", "FILE", "--responses", "FILE"),
        ("convert", "FILE", "--from", "wikidata", "-o", "new"),
        ("convert", "FILE", "--from", "hotpotqa", "-o", "new"),
        ("convert", "FILE", "--from", "2wikimultihopqa", "-o", "new"),
    ],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipe_or_endless_device_is_refused(
    command: tuple[str, ...], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    file = str(pipe) if kind == "pipe" else "/dev/zero"
    arguments = [tmp_path / part if part in ("new", "out.yaml") else part.replace("FILE", file) for part in command]
    assert "it is a pipe or device; save its content as a file" in refusal(*arguments)


def test_regular_file_is_opened_and_a_directory_is_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with open_regular(tmp_path / "file") as stream:
        assert stream.read() == b"text"
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_question_that_is_not_utf8_is_refused() -> None:
    assert "the question is not valid UTF-8 text" in refusal("ask", "run", "\udce4")
    assert "the search text is not valid UTF-8" in refusal("search", "\udce4", "--recipe", WORLD)


@pytest.mark.parametrize("redirect", ["", ">&-", "2>&-", "| head -c 1"])
def test_every_command_prints_in_an_ascii_locale_and_to_closed_streams(redirect: str, tmp_path: Path) -> None:
    run_dir = hand_made_run(tmp_path)
    command = f"{sys.executable} -m platform_sdk.cli report {run_dir} -o {tmp_path}/päge.html {redirect}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=HOME, capture_output=True, timeout=300, check=False,
        env={**os.environ, **ASCII, "PYTHONPATH": str(HOME)},
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr
    assert b"Exception ignored" not in done.stderr, done.stderr
    if not redirect:
        assert done.stdout.strip().endswith(b"ge.html")
        assert done.stdout.isascii()


def test_symlinked_recipe_finds_its_pipeline_beside_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    text = (HOME / WORLD).read_text().replace("pipeline: mygo", f"pipeline: ./{'pipeline.yaml'}")
    assert "./pipeline.yaml" in text
    (tmp_path / "real/own.yaml").write_text(text)
    (tmp_path / "real/pipeline.yaml").write_text((HOME / "pipelines/mygo/pipeline.yaml").read_text())
    (tmp_path / "link.yaml").symlink_to("real/own.yaml")
    done = CliRunner().invoke(app, ["validate", str(tmp_path / "link.yaml")])
    assert done.exit_code == 0, done.exception


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("model=hopforge:nope", "hopforge ships no model nope"),
        ("training.lora={alpha: 1e-320}", "so close to 0 that it has lost its digits"),
        ("training.lora={alpha: 1e-300}", "greater than or equal to 0.000001"),
        ("training.learning_rate=1e-300", "greater than or equal to 0.000000000001"),
        ("training.checkpoint_steps=1e9", "less than or equal to 1000000"),
        ("sampling.engine.threads=1e3", "less than or equal to 512"),
        ("dataset.world.train_questions=-0.0", "is a negative zero; write 0"),
        ("retrieval.encoder='{{x}}'", "is neither a directory nor a name on the Hugging Face hub"),
        ("training.learning_rate=.inf", "is not a finite number"),
        ("training.learning_rate=.nan", "is not a finite number"),
        ("training.learning_rate=1e999", "is not a finite number"),
    ],
)
def test_setting_that_cannot_be_meant_is_refused_with_its_place(setting: str, fault: str, tmp_path: Path) -> None:
    told = refusal("validate", WORLD, "--set", setting)
    assert fault in told
    assert f"--set {setting}: " in told or f"{WORLD}:" in told
    name, _, value = setting.partition("=")
    if name == "training.learning_rate":
        text = (HOME / WORLD).read_text().replace("learning_rate: 1.0e-3", f"learning_rate: {value}", 1)
        line = next(number for number, one in enumerate(text.splitlines(), 1) if f"learning_rate: {value}" in one)
        (tmp_path / "own.yaml").write_text(text)
        assert f"own.yaml:{line}: " in refusal("validate", tmp_path / "own.yaml")


def test_beta_that_has_no_effect_is_refused() -> None:
    recipe = "pipelines/arena/world.yaml"
    assert "beta 1e-300 has no effect" in refusal("validate", recipe, "--set", "online.beta=1e-300")
