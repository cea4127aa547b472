"""``hopforge remove``: what is removed on record is not missing, and nothing is removed without a record."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import Result
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.files import sha256
from platform_sdk.tracking import start_run, step_run
from platform_sdk.tracking.log.chain import FILE_NAME, Log
from platform_sdk.tracking.opened import open_run
from platform_sdk.tracking.verify import verify_run
from tests.tracking.small_run import RECIPE, ROLLOUTS, RUN, SCORES


def remove(folder: Path, *arguments: str, run: str = RUN) -> Result:
    return CliRunner().invoke(app, ["remove", run, *arguments, "--note", "Space.", "--folder", str(folder)])


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "verified.json"))
    return {str(path.relative_to(folder)): sha256(path) for path in files}


def test_removed_file_is_recorded_and_the_run_stays_readable(folder: Path) -> None:
    digest = sha256(folder / RUN / ROLLOUTS)
    done = remove(folder, ROLLOUTS, "--name", "ada")
    assert done.exit_code == 0, done.output
    entry = Log(folder / FILE_NAME).read().entries[-1]
    assert (entry.event, entry.run, entry.path, entry.digest) == ("files removed", RUN, ROLLOUTS, digest)
    assert (entry.who, entry.note) == ("ada", "Space.")
    assert entry.position in done.output
    assert not (folder / RUN / ROLLOUTS).exists()
    assert open_run(folder / RUN, full=True).altered == ()
    assert verify_run(folder / RUN).findings == ()
    (folder / RUN / SCORES).unlink()
    with pytest.raises(UserError, match=rf"{SCORES}: is missing"):
        open_run(folder / RUN)


def test_removed_folder_may_be_removed_again_after_an_interruption(folder: Path) -> None:
    model = folder / RUN / "warmup/model"
    kept = folder.parent / "kept"
    shutil.copytree(model, kept)
    assert remove(folder, "warmup/model").exit_code == 0
    assert not model.exists()
    shutil.copytree(kept, model)  # as if it had been stopped after the entry
    assert remove(folder, str(model)).exit_code == 0
    assert not model.exists()
    assert [entry.event for entry in Log(folder / FILE_NAME).read().entries] == ["run ended", "files removed"]
    assert verify_run(folder / RUN).findings == ()


def test_removed_run_is_whole_and_a_new_one_may_take_its_name(folder: Path, rewritten: Path) -> None:
    assert remove(folder, "--whole").exit_code == 0
    done = CliRunner().invoke(app, ["verify", str(folder)])
    assert done.exit_code == 0, done.output
    assert "small: whole, removed on record by" in done.stdout
    shutil.copytree(rewritten, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(FILE_NAME))
    assert CliRunner().invoke(app, ["log", "send", RUN, "--folder", str(folder)]).exit_code == 0
    assert verify_run(folder / RUN).findings == ()


def test_run_is_removed_only_if_that_is_meant(folder: Path) -> None:
    for arguments in ([], [ROLLOUTS, "--whole"]):
        assert "--whole for the whole run directory" in str(remove(folder, *arguments).exception)
    assert (folder / RUN / ROLLOUTS).exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("logs/nothing.txt", "no step of .* sealed a file there"),
        ("manifest.jsonl", "no step of .* sealed a file there"),
        ("../small-other", "no step of .* sealed a file there"),
        ("/etc/passwd", "no step of .* sealed a file there"),
        (".", "no step of .* sealed a file there"),
    ],
)
def test_path_without_a_seal_is_refused_and_nothing_is_removed(folder: Path, path: str, message: str) -> None:
    before = contents(folder)
    done = remove(folder, path)
    assert isinstance(done.exception, UserError)
    with pytest.raises(UserError, match=message):
        raise done.exception
    assert contents(folder) == before


def test_empty_argument_is_refused_inside_a_phase_and_inside_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(folder)
    monkeypatch.chdir(folder / RUN / "eval-start")
    assert "an argument is empty" in str(remove(folder, "").exception)
    monkeypatch.chdir(folder / RUN)
    assert "an argument is empty" in str(remove(folder, "--whole", run="").exception)
    assert contents(folder) == before


def test_path_through_a_link_to_the_folder_of_the_run_is_removed(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    done = remove(folder, str(link / RUN / ROLLOUTS))
    assert done.exit_code == 0, done.exception
    assert Log(folder / FILE_NAME).read().entries[-1].path == ROLLOUTS
    assert not (folder / RUN / ROLLOUTS).exists()


def test_user_without_a_name_is_recorded_by_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", Mock(side_effect=KeyError("uid not found")))  # as in a pod
    approved = CliRunner().invoke(app, ["approve", "small/1", "--note", "Read.", "--folder", str(folder)])
    for done in (approved, remove(folder, ROLLOUTS), remove(folder, "--whole")):
        assert done.exit_code == 0, done.exception
    assert [entry.who for entry in Log(folder / FILE_NAME).read().entries[1:]] == [str(os.getuid())] * 3


def test_altered_run_and_unwritable_log_are_refused_and_nothing_is_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(folder)
    with monkeypatch.context() as environment:
        environment.setenv("HOPFORGE_LOG", "http://127.0.0.1:9")
        for arguments in ([ROLLOUTS], ["--whole"]):
            assert "the log service cannot be reached" in str(remove(folder, *arguments).exception)
    assert contents(folder) == before
    (folder / RUN / SCORES).write_text("{}")
    assert f"{SCORES}: was altered" in str(remove(folder, ROLLOUTS).exception)
    assert (folder / RUN / ROLLOUTS).exists()
    assert len(Log(folder / FILE_NAME).read().entries) == 1


def test_files_that_later_steps_of_an_unfinished_run_need_are_refused(tmp_path: Path) -> None:
    run_dir = tmp_path / RUN
    run_dir.mkdir()
    (run_dir / "recipe.json").write_text(json.dumps(RECIPE))
    start_run(run_dir, RECIPE, follow=False)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with step_run(run_dir, "corpus") as step:
        (run_dir / "passages.jsonl").write_text("{}\n")
        step.seal(run_dir / "passages.jsonl")
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    assert "has not finished" in str(remove(tmp_path, "passages.jsonl").exception)
    assert "the run has not ended" in str(remove(tmp_path, "--whole").exception)
    assert (run_dir / "passages.jsonl").exists()


def test_removal_that_only_an_unreachable_log_can_confirm_is_not_checkable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remove(folder, ROLLOUTS).exit_code == 0
    (folder / RUN / SCORES).unlink()
    monkeypatch.setenv("HOPFORGE_LOG", "http://127.0.0.1:9")
    found = {(finding.kind, finding.thing) for finding in verify_run(folder / RUN).findings}
    assert found == {("not checkable", ROLLOUTS), ("missing", SCORES)}


def test_report_of_a_run_without_its_rollouts_is_written(folder: Path) -> None:
    assert remove(folder, ROLLOUTS).exit_code == 0
    page = folder / "page.html"
    done = CliRunner().invoke(app, ["report", str(folder / RUN), "-o", str(page)])
    assert done.exit_code == 0, done.exception
    assert page.is_file()
