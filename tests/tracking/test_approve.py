"""``hopforge approve``: only whole models are approved, and forged approvals are named by ``hopforge verify``."""

from __future__ import annotations

import base64
import json
import sqlite3
from pathlib import Path
from unittest.mock import Mock

import mlflow
import pytest
from click.testing import Result
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.tracking import approvals
from platform_sdk.tracking.log.chain import FILE_NAME, Log, Statement
from platform_sdk.tracking.log.keys import SigningKey
from tests.authority import make_key, openssl
from tests.tracking.small_run import RUN, SCORES

ALIAS = "MLflow model small: alias approved"
TAG = "MLflow model small/1: tag approved"
SIGNED = "approval of small/1"
RUN_TAG = "MLflow run small: tag approved"


def approve(folder: Path, *arguments: str, model: str = "small/1") -> Result:
    return CliRunner().invoke(
        app, ["approve", model, "--note", "Read the rollouts.", "--folder", str(folder), *arguments]
    )


def found(folder: Path, *arguments: str) -> tuple[int, set[tuple[str, str]]]:
    done = CliRunner().invoke(app, ["verify", str(folder), "--json", *arguments])
    runs = json.loads(done.stdout)["runs"]
    return done.exit_code, {(one["kind"], one["thing"]) for run in runs for one in run["findings"]}


def execute(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "mlflow.db") as database:
        database.execute(statement)
    database.close()


def approver_key(folder: Path, name: str, approvers: Path) -> str:
    key = folder.parent / f"{name}.key"
    approvers.mkdir(exist_ok=True)
    make_key(key, approvers / f"{name}.pem")
    return str(key)


def test_approval_is_logged_shown_as_a_claim_and_withdrawn(folder: Path) -> None:
    done = approve(folder, "--name", "Ada")
    assert done.exit_code == 0, done.output
    assert "model approved by Ada (a claim)" in done.output
    assert found(folder) == (0, set())
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    assert client.get_registered_model("small").aliases["approved"] in (1, "1")
    assert found(folder, "--approvers", str(folder)) == (3, {("not checkable", SIGNED)})
    done = approve(folder, "--withdraw", model="small@approved")
    assert done.exit_code == 0, done.output
    assert found(folder) == (0, set())
    assert "approved" not in client.get_registered_model("small").aliases
    assert "nothing to withdraw" in str(approve(folder, "--withdraw").exception)
    assert approve(folder).exit_code == 0
    events = [entry.event for entry in Log(folder / FILE_NAME).read().entries]
    assert events == ["run ended", "model approved", "approval withdrawn", "model approved"]
    assert found(folder) == (0, set())


def test_approval_of_a_removed_runs_model_is_withdrawn(folder: Path) -> None:
    assert approve(folder).exit_code == 0
    removed = CliRunner().invoke(app, ["remove", RUN, "--whole", "--note", "Space.", "--folder", str(folder)])
    assert removed.exit_code == 0, removed.exception
    assert "no run directory" in str(approve(folder).exception)
    done = approve(folder, "--withdraw")
    assert done.exit_code == 0, done.exception
    approved, _, withdrawn = Log(folder / FILE_NAME).read().entries[1:]
    assert (withdrawn.event, withdrawn.start, withdrawn.head) == ("approval withdrawn", approved.start, approved.head)
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    assert "approved" not in client.get_registered_model("small").aliases
    assert client.get_model_version("small", "1").tags["approved"].startswith("approval withdrawn by")


ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the curve's group: with (r, s), (r, ORDER - s) is a valid signature too."""


def test_withdrawn_approval_cannot_be_repeated_without_its_key(folder: Path, tmp_path: Path) -> None:
    approvers = tmp_path / "keys"
    key = approver_key(folder, "ada", approvers)
    assert approve(folder, "--key", key, "--name", "ada").exit_code == 0
    assert approve(folder, "--key", key, "--name", "ada", "--withdraw").exit_code == 0
    log = Log(folder / FILE_NAME)
    old = log.read().entries[1]
    r, s = decode_dss_signature(base64.b64decode(old.signature))
    twin = base64.b64encode(encode_dss_signature(r, ORDER - s)).decode()
    assert log.append(Statement(**{**old.content(), "signature": twin})).sequence == 1
    copied = log.chain.follow(Statement(**old.content()), "")
    with (folder / FILE_NAME).open("ab") as stream:
        stream.write(copied.line() + b"\n")
    assert ("altered", "log") in found(folder, "--approvers", str(approvers))[1]


def test_interrupted_withdrawal_is_completed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert approve(folder).exit_code == 0
    with monkeypatch.context() as interrupted:
        interrupted.setattr(approvals, "_publish", Mock(side_effect=UserError("MLflow is away")))
        assert approve(folder, "--withdraw").exit_code != 0
    assert found(folder)[0] == 1  # MLflow still has the alias
    assert "nothing to withdraw" in str(approve(folder, "--withdraw").exception)
    assert found(folder) == (0, set())


def test_note_that_is_too_long_is_refused_in_one_sentence(folder: Path) -> None:
    done = CliRunner().invoke(app, ["approve", "small/1", "--note", "n" * 2001, "--folder", str(folder)])
    assert isinstance(done.exception, UserError)
    assert "note: String should have at most 2000 characters" in str(done.exception)


def test_model_with_a_finding_is_refused(folder: Path) -> None:
    (folder / RUN / SCORES).write_text("{}")
    before = (folder / FILE_NAME).read_bytes()
    done = approve(folder)
    assert isinstance(done.exception, UserError)
    assert f"{SCORES}: altered" in str(done.exception)
    assert (folder / FILE_NAME).read_bytes() == before


def test_edited_approval_in_mlflow_is_named(folder: Path) -> None:
    approve(folder)
    execute(folder, "UPDATE model_version_tags SET value = 'model approved by Grace' WHERE key = 'approved'")
    assert found(folder) == (1, {("altered", TAG)})
    execute(folder, "DELETE FROM model_version_tags WHERE key = 'approved'")
    execute(folder, "DELETE FROM registered_model_aliases WHERE alias = 'approved'")
    assert found(folder) == (1, {("missing", TAG), ("missing", ALIAS)})


def test_edited_approval_of_the_run_in_mlflow_is_named(folder: Path) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    run_id = client.get_model_version("small", "1").run_id
    client.set_tag(run_id, "approved", "model approved by Grace")
    assert found(folder) == (1, {("added", RUN_TAG)})
    client.delete_tag(run_id, "approved")
    approve(folder, "--name", "Ada")
    assert "approved by Ada" in client.get_run(run_id).data.tags["approved"]
    client.set_tag(run_id, "approved", "model approved by Grace")
    assert found(folder) == (1, {("altered", RUN_TAG)})
    client.delete_tag(run_id, "approved")
    assert found(folder) == (1, {("missing", RUN_TAG)})


def test_signature_is_checked_with_the_approvers_keys(folder: Path, tmp_path: Path) -> None:
    approvers = tmp_path / "approvers"
    ada, grace = approver_key(folder, "ada", approvers), approver_key(folder, "grace", approvers)
    assert approve(folder, "--name", "ada", "--key", ada).exit_code == 0
    assert found(folder, "--approvers", str(approvers)) == (0, set())
    assert approve(folder, "--name", "ada", "--key", grace).exit_code == 0
    assert found(folder) == (0, set())
    assert found(folder, "--approvers", str(approvers)) == (1, {("altered", SIGNED)})
    assert approve(folder, "--name", "eve", "--key", grace).exit_code == 0
    assert found(folder, "--approvers", str(approvers)) == (1, {("altered", SIGNED)})


def test_withdrawn_signature_is_not_valid_for_another_entry(folder: Path, tmp_path: Path) -> None:
    """Copy a signature into a new entry, as someone who can write the log can."""
    approvers = tmp_path / "approvers"
    assert approve(folder, "--name", "ada", "--key", approver_key(folder, "ada", approvers)).exit_code == 0
    assert approve(folder, "--withdraw").exit_code == 0
    log = Log(folder / FILE_NAME)
    signed = log.read().entries[1]
    replayed = Statement.model_validate(signed.content())
    assert log.append(replayed) == signed, "a repeated approval does not undo the withdrawal"
    forged = log.append(replayed.model_copy(update={"at": "2027-01-01T00:00:00.000+00:00"}))
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    client.set_registered_model_alias("small", "approved", "1")
    from platform_sdk.tracking.log.approvers import shown

    client.set_model_version_tag("small", "1", "approved", shown(forged))
    client.set_tag(client.get_model_version("small", "1").run_id, "approved", shown(forged))
    assert found(folder, "--approvers", str(approvers)) == (1, {("altered", SIGNED)})


@pytest.mark.parametrize(
    "content", ["", "no key", "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----"]
)
def test_unreadable_key_is_named(folder: Path, tmp_path: Path, content: str) -> None:
    key = tmp_path / "bad.key"
    key.write_text(content)
    done = approve(folder, "--key", str(key))
    assert isinstance(done.exception, UserError)
    assert str(key) in str(done.exception)
    assert isinstance(approve(folder, model="unknown/1").exception, UserError)


def test_key_of_an_unsupported_curve_is_named(tmp_path: Path) -> None:
    key = tmp_path / "curve.key"
    openssl("ecparam", "-name", "prime239v1", "-genkey", "-noout", "-out", str(key))
    with pytest.raises(UserError, match=r"curve\.key: is no private key in PEM"):
        SigningKey(key)
