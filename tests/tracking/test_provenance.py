"""Code, place and seeds in the entry of a run's start."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import platform_sdk
from platform_sdk.tracking import manifest, start_run
from platform_sdk.tracking.manifest import Entry
from platform_sdk.tracking.provenance import provenance, seeds_of, source_digest
from platform_sdk.tracking.verify import verify_run

RECIPE = {"pipeline": "mygo", "name": "small", "parameters": {"seed": 3}}
START = """
import json, sys
from pathlib import Path
from platform_sdk.tracking import start_run
start_run(Path(sys.argv[1]), json.loads(sys.argv[2]), follow=False)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git checkout with the library's source files and one commit; tests change copies."""
    folder = tmp_path_factory.mktemp("checkout")
    package = Path(platform_sdk.__file__).parent
    skipped = shutil.ignore_patterns("__pycache__", "assets")
    shutil.copytree(package, folder / "platform_sdk", ignore=skipped)
    (folder / ".gitignore").write_text("__pycache__/\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "All")
    return folder


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout


def started(checkout: Path, run_dir: Path) -> Entry:
    """Start a run with the code of a checkout; return the manifest's last start."""
    run_dir.mkdir(exist_ok=True)
    (run_dir / "recipe.json").write_text(json.dumps(RECIPE))
    command = [sys.executable, "-c", START, str(run_dir), json.dumps(RECIPE)]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    return manifest.read(run_dir)[-1]


def test_uncommitted_changes_are_kept_as_a_patch_that_gives_the_recorded_source(checkout: Path, tmp_path: Path) -> None:
    dirty = Path(shutil.copytree(checkout, tmp_path / "dirty"))
    with (dirty / "platform_sdk/errors.py").open("a") as changed:
        changed.write("# Ein kleiner Zusatz: é\n")
    (dirty / "platform_sdk/data/own.py").write_text("ANSWER = 42\n")  # not known to git
    (dirty / "platform_sdk/pages/__init__.py").unlink()
    git(dirty, "config", "diff.noprefix", "true")
    git(dirty, "config", "color.ui", "always")
    run_dir = tmp_path / "run"
    start = started(dirty, run_dir)
    [kept] = start.outputs
    assert start.origin["commit"] == git(checkout, "rev-parse", "HEAD").strip()
    assert start.origin["diff"] == kept.sha256
    clean = Path(shutil.copytree(checkout, tmp_path / "clean"))
    git(clean, "apply", str(run_dir / kept.path))
    assert source_digest(clean / "platform_sdk") == start.origin["source"] != source_digest(checkout / "platform_sdk")
    (run_dir / kept.path).write_bytes(b"")
    assert ("altered", kept.path) in {(finding.kind, finding.thing) for finding in verify_run(run_dir).findings}


def test_each_start_of_a_run_keeps_its_own_changes(checkout: Path, tmp_path: Path) -> None:
    dirty = Path(shutil.copytree(checkout, tmp_path / "dirty"))
    assert started(dirty, tmp_path / "run").outputs == (), "a clean checkout has none"
    found = []
    for number in range(2):
        (dirty / "platform_sdk/errors.py").write_text(
            f"# change {number}\n{(checkout / 'platform_sdk/errors.py').read_text()}"
        )
        [kept] = started(dirty, tmp_path / "run").outputs
        found.append(kept.path)
    assert len(set(found)) == 2
    assert all((tmp_path / "run" / path).is_file() for path in found)


def test_an_installation_without_git_has_a_source_digest_and_the_images_commit(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOPFORGE_COMMIT", raising=False)
    installed = Path(shutil.copytree(checkout, tmp_path / "installed", ignore=shutil.ignore_patterns(".git")))
    start = started(installed, tmp_path / "run")
    assert start.origin["source"] == source_digest(checkout / "platform_sdk")
    assert "commit" not in start.origin
    assert start.outputs == ()
    monkeypatch.setenv("HOPFORGE_COMMIT", "c" * 40)
    assert started(installed, tmp_path / "other").origin["commit"] == "c" * 40


def test_commit_is_the_codes_own_in_the_hook_of_another_repository(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    start = started(checkout, tmp_path / "run")
    monkeypatch.delenv("GIT_DIR")
    assert start.origin["commit"] == git(checkout, "rev-parse", "HEAD").strip()
    assert start.outputs == ()


def test_recorded_packages_are_the_imported_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = provenance().packages
    (tmp_path / "~orch-1.0.dist-info").mkdir()  # as an interrupted installation leaves it
    shadowed = tmp_path / "pydantic-0.1.dist-info"
    shadowed.mkdir()
    (shadowed / "METADATA").write_text("Name: pydantic\nVersion: 0.1\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert provenance().packages == imported
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path[:-1]])
    assert provenance().packages == imported | {"pydantic": "0.1"}


def test_seeds_are_found_by_their_dotted_names() -> None:
    settings = {
        "seed": 3,
        "dataset": {"seed": 0, "world": {"seed": 7}, "mixture": [{"seed": 1}, {"seeds": 2}]},
        "sampling": {"seed": None, "shuffle_seed": 5, "seeded": 9, "reseed": 8},
        "note": "seed",
    }
    assert seeds_of(settings) == {
        "seed": 3, "dataset.seed": 0, "dataset.world.seed": 7, "dataset.mixture.0.seed": 1, "sampling.shuffle_seed": 5,
    }  # fmt: skip


def test_start_records_place_images_and_seeds(tmp_path: Path) -> None:
    place = {"namespace": "team-a", "account": "launcher", "queue": "gpus", "pipelines_run": "1234"}
    start_run(tmp_path / "run", RECIPE, follow=False, place=place, images={"launcher:1": "sha256:0a"})
    [start] = manifest.read(tmp_path / "run")
    assert place.items() <= start.origin.items()
    assert start.images == {"launcher:1": "sha256:0a"}
    assert start.seeds == {"seed": 3}
    start_run(tmp_path / "run", RECIPE, follow=False, place=place, images={"launcher:1": "sha256:0b"})
    assert [entry.images["launcher:1"] for entry in manifest.read(tmp_path / "run")] == ["sha256:0a", "sha256:0b"]
