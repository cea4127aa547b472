"""``hopforge export --audit``: the added files follow from run and log, and other tools accept them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf.json_format import Parse, ParseDict
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.methods.model_signature import sign_directory, signature_fault
from platform_sdk.tracking import manifest
from platform_sdk.tracking.log.chain import FILE_NAME, Log, Statement
from tests.authority import make_key
from tests.methods.finished_run import RECIPES, finished_run, seal_run
from tests.methods.test_model_export import SCORES

ADDED = {"manifest.jsonl", "log-entries.jsonl", "checkpoint.json", "bom.cdx.json", "provenance.json", "model.sig"}
MODEL_SIGNING = Path(sys.executable).parent / "model_signing"


def make_pair(folder: Path, name: str, curve: str = "prime256v1") -> tuple[Path, Path]:
    """Return a private and a public EC key."""
    key, public = folder / f"{name}.key", folder / f"{name}.pem"
    make_key(key, public, curve)
    return key, public


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that the log knows, and its signed export; another run's end is in the log too."""
    folder = tmp_path_factory.mktemp("runs")
    run_dir = finished_run(folder, "arena")
    (run_dir / "eval-final/scores.json").write_text(json.dumps(SCORES))
    seal_run(run_dir)
    entries = manifest.read(run_dir)
    log = Log(folder / FILE_NAME)
    for run, start in (("other", "0" * 64), ("arena", entries[0].hash)):
        log.append(Statement(event="run ended", run=run, start=start, head=entries[-1].head, status="FINISHED"))
    key, _ = make_pair(folder, "signer")
    arguments = ["export", str(run_dir), "-o", str(folder / "model"), "--audit", "--key", str(key)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MLFLOW_TRACKING_URI", "HOPFORGE_LOG"):
        monkeypatch.delenv(name, raising=False)
    return Path(shutil.copytree(original, tmp_path / "copied"))


def found(folder: Path, *arguments: str, runs: Path | None = None) -> set[tuple[str, str]]:
    """Return the findings of ``hopforge verify`` in the exported directory."""
    command = ["verify", str(folder / "model"), "--folder", str(runs or folder), "--json", *arguments]
    done = CliRunner().invoke(app, command)
    first = json.loads(done.stdout)["runs"][0]
    assert first["run"] == str(folder / "model")
    return {(one["kind"], one["thing"]) for one in first["findings"]}


def flip(path: Path, place: int = -2) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def signing_tool(folder: Path, public: str = "signer.pem") -> subprocess.CompletedProcess[str]:
    model = folder / "model"
    command = [str(MODEL_SIGNING), "verify", "key", str(model), "--signature", str(model / "model.sig"),
               "--public_key", str(folder / public)]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_export_adds_the_records_and_verify_finds_nothing(folder: Path) -> None:
    model = folder / "model"
    assert {path.name for path in model.iterdir()} >= ADDED
    assert (model / "manifest.jsonl").read_bytes() == (folder / "arena/manifest.jsonl").read_bytes()
    [entry] = [json.loads(line) for line in (model / "log-entries.jsonl").read_text().splitlines()]
    assert (entry["run"], entry["sequence"]) == ("arena", 1)
    assert json.loads((model / "checkpoint.json").read_text())["size"] == 2
    assert found(folder) == {("not checkable", "model.sig")}
    assert found(folder, "--public-key", str(folder / "signer.pem")) == set()


def test_later_entries_of_the_log_change_nothing(folder: Path) -> None:
    start, head = manifest.read(folder / "arena")[0].hash, manifest.read(folder / "arena")[-1].head
    Log(folder / FILE_NAME).append(Statement(event="run ended", run="arena", start=start, head=head, status="FAILED"))
    assert found(folder, "--public-key", str(folder / "signer.pem")) == set()


@pytest.mark.parametrize("name", sorted(ADDED - {"model.sig"}))
def test_each_changed_or_removed_file_is_named_with_the_signature(folder: Path, name: str) -> None:
    key = ("--public-key", str(folder / "signer.pem"))
    if name == "checkpoint.json":
        path = folder / "model" / name
        path.write_text(path.read_text().replace('"size": 2', '"size": 1'))
    else:
        flip(folder / "model" / name)
    assert found(folder) == {("altered", name), ("not checkable", "model.sig")}
    assert found(folder, *key) == {("altered", name), ("altered", "model.sig")}
    (folder / "model" / name).unlink()
    assert found(folder, *key) == {("missing", name), ("altered", "model.sig")}


def test_model_signings_own_command_accepts_the_directory_and_refuses_one_changed_byte(folder: Path) -> None:
    done = signing_tool(folder)
    assert done.returncode == 0, done.stderr
    make_pair(folder, "other")
    assert signing_tool(folder, "other.pem").returncode != 0
    flip(folder / "model/model.safetensors")
    assert "model.safetensors" in signing_tool(folder).stderr


def test_signature_covers_every_file_and_survives_a_move(folder: Path) -> None:
    model, public = folder / "model", folder / "signer.pem"
    for path in sorted(path for path in model.iterdir() if path.name != "model.sig"):
        before = path.read_bytes()
        flip(path)
        assert path.name in signature_fault(model, public)
        path.write_bytes(before)
    (model / ".gitignore").write_text("")
    assert ".gitignore" in signature_fault(model, public)
    (model / ".gitignore").unlink()
    model.rename(folder / "renamed")
    assert signature_fault(folder / "renamed", public) == ""


def test_signature_of_another_key_and_a_signature_of_random_bytes_are_named(folder: Path) -> None:
    _, other = make_pair(folder, "other")
    assert found(folder, "--public-key", str(other)) == {("altered", "model.sig")}
    (folder / "model/model.sig").write_bytes(bytes(range(256)))
    assert found(folder, "--public-key", str(folder / "signer.pem")) == {("altered", "model.sig")}
    (folder / "model/model.sig").unlink()
    assert found(folder, "--public-key", str(folder / "signer.pem")) == {("missing", "model.sig")}


def test_unusable_public_key_gives_one_sentence(folder: Path) -> None:
    (folder / "text.pem").write_text("no key")
    for target, key in (("model", "absent.pem"), ("model", "text.pem"), ("arena", "signer.pem")):
        command = ["verify", str(folder / target), "--folder", str(folder), "--public-key", str(folder / key)]
        done = CliRunner().invoke(app, command)
        assert isinstance(done.exception, UserError)
        assert "\n" not in str(done.exception)


def test_signature_covers_the_directory_where_the_run_is_not(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    entries = manifest.read(folder / "arena")
    weights = (folder / "model/README.md").read_text().partition("| weights | `")[2].partition("`")[0]
    Log(elsewhere / FILE_NAME).append(
        Statement(event="run ended", run="/far/arena", start=entries[0].hash, head=entries[-1].head, weights=weights)
    )
    assert found(folder, "--public-key", str(folder / "signer.pem"), runs=elsewhere) == set()
    assert ("not checkable", "files other than the weights") in found(folder, runs=elsewhere)
    flip(folder / "model/bom.cdx.json")
    assert ("altered", "model.sig") in found(folder, "--public-key", str(folder / "signer.pem"), runs=elsewhere)
    # Whoever has the key can sign other weights, but not change the log.
    flip(folder / "model/bom.cdx.json")
    flip(folder / "model/model.safetensors")
    sign_directory(folder / "model", folder / "signer.key")
    assert found(folder, "--public-key", str(folder / "signer.pem"), runs=elsewhere) == {("altered", "weights")}


def test_exported_directory_in_the_folder_of_runs_is_no_run(folder: Path) -> None:
    done = CliRunner().invoke(app, ["verify", str(folder), "--json"])
    assert {Path(run["run"]).name for run in json.loads(done.stdout)["runs"]} == {"arena", "other"}


def test_bill_of_materials_is_valid_and_has_files_origins_and_scores(folder: Path) -> None:
    text = (folder / "model/bom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_7).validate_str(text) is None
    model = json.loads(text)["metadata"]["component"]
    files = {one["name"]: one["hashes"][0]["content"] for one in model["components"]}
    weights = folder / "model/model.safetensors"
    assert files["model.safetensors"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert {path.name for path in (folder / "model").iterdir()} == set(files) | ADDED
    assert "dataset world" in [one["ref"] for one in model["modelCard"]["modelParameters"]["datasets"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(RECIPES) - {"arena"}))
def test_strict_validator_accepts_the_bill_of_every_method(name: str, tmp_path: Path) -> None:
    run_dir = finished_run(tmp_path, name)
    for phase in ("eval-start", "eval-final"):
        (run_dir / phase / "scores.json").write_text(json.dumps(SCORES))
    seal_run(run_dir)
    done = CliRunner().invoke(app, ["export", str(run_dir), "-o", str(tmp_path / "model"), "--audit"])
    assert done.exit_code == 0, done.output
    assert JsonStrictValidator(SchemaVersion.V1_7).validate_str((tmp_path / "model/bom.cdx.json").read_text()) is None


def test_provenance_is_an_in_toto_statement_about_the_exported_files(folder: Path) -> None:
    text = (folder / "model/provenance.json").read_text()
    statement = Parse(text, statement_pb2.Statement())
    assert (statement.type, statement.predicate_type) == (
        "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1",
    )  # fmt: skip
    subjects = {one.name: one.digest["sha256"] for one in statement.subject}
    model = folder / "model"
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in model.iterdir()}
    assert subjects == {name: digest for name, digest in files.items() if name not in ADDED}
    predicate = ParseDict(json.loads(text)["predicate"], provenance_pb2.Provenance())
    assert predicate.build_definition.external_parameters["recipe"]["name"] == "arena-world"
    assert predicate.run_details.byproducts[0].digest["sha256"] == files["manifest.jsonl"]
    head = manifest.read(folder / "arena")[-1].head
    assert predicate.run_details.metadata.invocation_id == f"urn:hopforge:manifest:{head}"


def no_key(folder: Path) -> Path:
    return folder / "absent.key"


def text_key(folder: Path) -> Path:
    (folder / "text.key").write_text("no key")
    return folder / "text.key"


def other_curve(folder: Path) -> Path:
    return make_pair(folder, "curve", "secp256k1")[0]


@pytest.mark.parametrize("key", [no_key, text_key, other_curve])
def test_unusable_key_gives_one_sentence_before_anything_is_written(
    folder: Path, tmp_path: Path, key: Callable[[Path], Path]
) -> None:
    path = key(folder)
    command = ["export", str(folder / "arena"), "-o", str(tmp_path / "again"), "--key", str(path)]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, UserError)
    assert str(path) in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("package", ["cyclonedx", "model_signing"])
def test_missing_extra_gives_the_command_that_installs_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    done = CliRunner().invoke(app, ["export", str(folder / "arena"), "-o", str(tmp_path / "again"), "--audit"])
    assert isinstance(done.exception, UserError)
    assert "pip install hopforge[audit]" in str(done.exception)
    assert not (tmp_path / "again").exists()


def test_broken_log_gives_one_sentence_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    (folder / FILE_NAME).write_text("{}\n")
    done = CliRunner().invoke(app, ["export", str(folder / "arena"), "-o", str(tmp_path / "again"), "--audit"])
    assert isinstance(done.exception, UserError)
    assert "line 1 is no entry" in str(done.exception)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("option", ["--audit", "--key=signer.key"])
def test_altered_run_is_neither_audited_nor_signed(folder: Path, tmp_path: Path, option: str) -> None:
    command = ["export", str(folder / "arena"), "-o", str(tmp_path / "x"), "--altered", option]
    assert "neither audited nor signed" in str(CliRunner().invoke(app, command).exception)
    assert not (tmp_path / "x").exists()


def test_audit_of_chats_is_refused(folder: Path, tmp_path: Path) -> None:
    command = ["export", str(folder / "arena"), "-o", str(tmp_path / "x"), "--format", "messages", "--audit"]
    assert "apply to the model only" in str(CliRunner().invoke(app, command).exception)
