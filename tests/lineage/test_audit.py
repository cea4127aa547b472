"""``hopforge audit``: the page of a model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.tracking import manifest
from platform_sdk.tracking.log.chain import FILE_NAME, Log, Statement
from tests.lineage.runs import BASE, write_dataset, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and a second run that begins with the first one's model."""
    root = tmp_path_factory.mktemp("audit")
    data = write_dataset(root / "data")
    model = write_run(root / "runs/first", data)
    train = data / "train.jsonl"
    train.write_text(train.read_text().replace("Who founded town 3", "Who runs the city 0"))
    write_run(root / "runs/second", data, base=model)
    return root / "runs"


def audit(folder: Path, target: str, *arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["audit", target, *arguments, "--json", "--no-encoder", "--folder", str(folder)])
    assert done.exit_code in (0, 1, 3), done.output
    return dict(json.loads(done.stdout))


def test_audit_joins_the_runs_that_a_model_stands_on(folder: Path) -> None:
    found = audit(folder, "second")
    assert sorted(run["run"] for run in found["runs"]) == ["first", "second"]
    assert sorted(one["run"] for one in found["verifications"]) == ["first", "second"]
    assert BASE in {node["digest"] for node in found["roots"]}
    assert [(one["phase"], one["metric"], one["value"], one["low"]) for one in found["scores"]] == [
        ("second/eval-final", "em", 0.5, 0.25)
    ]


def test_audit_finds_the_overlap_with_all_training_questions_of_the_lineage(folder: Path) -> None:
    assert audit(folder, "first")["overlap"]["pairs"] == []
    pair = audit(folder, "second")["overlap"]["pairs"][0]
    assert (pair["kind"], pair["evaluation_id"], pair["training_id"]) == ("equal after normalisation", "e0", "t3")


def test_page_shows_every_section_and_unknown_licences(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    done = CliRunner().invoke(app, ["audit", "second", "-o", str(page), "--no-encoder", "--folder", str(folder)])
    assert done.output.startswith("licence unknown: dataset jsonl has no known licence")
    assert "licence: dataset jsonl: unknown, revision unknown" in done.output
    text = page.read_text()
    for section in ("licences", "approvals", "training", "scores", "verification", "overlap", "origins"):
        assert f'<section id="{section}"' in text
    assert '<span class="badge warn">unknown</span>' in text
    assert text.count("<details") == text.count("</details>") > 5


def test_page_is_usable_by_keyboard_and_on_a_narrow_screen(
    folder: Path, tmp_path: Path, open_page: Callable[[str], Any]
) -> None:
    path = tmp_path / "audit.html"
    CliRunner().invoke(app, ["audit", "second", "-o", str(path), "--no-encoder", "--folder", str(folder)])
    page = open_page(path.read_text())
    for section in ("Licences", "Approvals", "Training", "Scores", "Verification", "Origins"):
        assert page.get_by_role("region", name=section, exact=True).count() == 1
    model = page.locator("#origins summary").first
    assert page.locator("#origins details[open]").count() == page.locator("#origins details").count()
    for _ in range(40):
        page.keyboard.press("Tab")
        if model.evaluate("one => one === document.activeElement"):
            break
    page.keyboard.press("Enter")
    assert model.evaluate("one => !one.parentElement.open")
    assert page.locator("#origins li li").first.is_hidden()
    page.keyboard.press("Space")
    assert page.locator("#origins li li").first.is_visible()
    page.set_viewport_size({"width": 420, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 420


def test_run_is_named_by_the_current_directory_and_by_a_link(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = audit(folder, "second")["model"]
    runs = tmp_path / "runs"
    runs.mkdir()
    for run in ("first", "second"):
        (runs / run).symlink_to(folder / run)
    monkeypatch.chdir(folder / "second")
    for target, place in ((".", folder), ("../second/.", folder), (str(runs / "second"), runs)):
        assert audit(place, target)["model"]["digest"] == model["digest"]
    for command in ("audit", "lineage"):
        done = CliRunner().invoke(app, [command, ".", "--folder", str(runs)])
        assert "not a run in" in str(done.exception)


def test_target_without_a_model_gives_one_sentence(folder: Path) -> None:
    scores = str(folder / "first/eval-final/scores.json")
    done = CliRunner().invoke(app, ["audit", scores, "--folder", str(folder)])
    assert isinstance(done.exception, UserError)
    assert "neither a model nor a run that trained one" in str(done.exception)


def test_audit_shows_approvals_of_the_weights_and_checks_their_signatures(folder: Path, tmp_path: Path) -> None:
    runs = Path(shutil.copytree(folder, tmp_path / "runs"))
    weights = audit(runs, "second")["model"]["digest"]
    entries = manifest.read(runs / "second")
    log, of_run = Log(runs / FILE_NAME), {"run": "second", "start": entries[0].hash, "head": entries[-1].head}
    approval = {"event": "model approved", "model": "small", "version": "2", "who": "Ada", "note": "Read."}
    log.append(Statement.model_validate({**of_run, **approval, "weights": weights}))
    log.append(Statement.model_validate({**of_run, **approval, "weights": BASE, "version": "1"}))
    [found] = audit(runs, "second")["approvals"]
    assert (found["model"], found["version"], found["fault"]) == ("small", "2", "")
    assert found["decision"].startswith("model approved by Ada (a claim)")
    [checked] = audit(runs, "second", "--approvers", str(tmp_path))["approvals"]
    assert checked["fault"] == "the name Ada is a claim without a signature"


def rewrite(run_dir: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the entries of a manifest and chain them again."""
    path = run_dir / manifest.FILE_NAME
    previous, lines = manifest.GENESIS, []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        change(entry)
        del entry["hash"]
        entry["previous"] = previous
        previous = manifest.digest_of(entry)
        lines.append(json.dumps({**entry, "hash": previous}, separators=(",", ":"), ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n")


def relicense(entry: dict[str, Any]) -> None:
    for one in entry.get("licences", ()):
        one |= {"thing": "dataset hotpotqa", "licence": "CC BY-SA 4.0"}


def test_audit_of_runs_without_a_record_of_licences_reports_them_as_unknown(folder: Path, tmp_path: Path) -> None:
    runs = Path(shutil.copytree(folder, tmp_path / "runs"))
    for name in ("first", "second"):
        rewrite(runs / name, lambda entry: entry.pop("licences", None))
    recipe = json.loads((runs / "first/recipe.json").read_text())
    recipe["parameters"]["dataset"] = {"format": "mixed", "mixture": [{"format": "hotpotqa"}, {"format": "jsonl"}]}
    (runs / "first/recipe.json").write_text(json.dumps(recipe))
    done = CliRunner().invoke(app, ["audit", "second", "--no-encoder", "--folder", str(runs)])
    licences = [line for line in done.output.splitlines() if line.startswith("licence: ")]
    assert licences == [
        f"licence: {thing}: unknown, revision unknown (no record)"
        for thing in ("dataset hotpotqa", "dataset jsonl", "model first/policy")
    ]


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("first/recipe.json", {}, "lacks a recipe's name, pipeline or parameters"),
        ("first/recipe.json", {"name": "a", "pipeline": "b", "parameters": {"dataset": "c"}}, "parameters.dataset: is"),
        ("second/eval-final/scores.json", {"metrics": {"em": 3}}, "a field is missing or invalid"),
        ("second/eval-final/scores.json", {"n": 2, "metrics": {"em": {"value": "x"}}}, "a field is missing or invalid"),
    ],
)
def test_edited_file_is_named_by_the_audit(
    folder: Path, tmp_path: Path, name: str, content: dict[str, Any], fault: str
) -> None:
    runs = Path(shutil.copytree(folder, tmp_path / "runs"))
    (runs / name).write_text(json.dumps(content))
    done = CliRunner().invoke(app, ["audit", "second", "--no-encoder", "--folder", str(runs)])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith(f"{runs / name}: {fault}")


def test_conflicts_with_the_named_licence_are_on_top(folder: Path, tmp_path: Path) -> None:
    runs = Path(shutil.copytree(folder, tmp_path / "runs"))
    recipe = runs / "second/recipe.json"
    recipe.write_text(recipe.read_text().replace('"jsonl"', '"hotpotqa"'))
    for name in ("first", "second"):
        rewrite(runs / name, relicense)
    done = CliRunner().invoke(
        app, ["audit", "second", "--licence", "apache-2.0", "--no-encoder", "--folder", str(runs)]
    )
    assert done.output.startswith(
        "licence conflict: dataset hotpotqa: CC-BY-SA-4.0 permits adapted material under CC-BY-SA-4.0 or "
        "GPL-3.0-only or GPL-3.0-or-later only, but the model's licence is Apache-2.0\n"
    )


def test_cost_is_the_sum_over_all_runs_of_the_lineage(folder: Path) -> None:
    done = CliRunner().invoke(app, ["audit", "second", "--no-encoder", "--folder", str(folder)])
    assert "cost: 0 GPU hours in 2 runs" in done.output


@pytest.mark.parametrize("arguments", [["absent"], ["ffffffff"], ["second", "--approvers", "/nowhere"]])
def test_bad_arguments_give_one_sentence(folder: Path, arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["audit", *arguments, "--no-encoder", "--folder", str(folder)])
    assert isinstance(done.exception, UserError)
    assert "\n" not in str(done.exception)
