"""``hopforge reproduce``: equal runs are equal; the first step that differs is named, and what differed before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.tracking.journal import Journal, run_file
from platform_sdk.tracking.manifest import Entry
from platform_sdk.tracking.reproduction import Reproduction, compare_circumstances, compare_steps, results_of
from tests.commands import hopforge, succeed_here
from tests.refusals import refused
from tests.sealing import sealed

HOME = Path(__file__).parents[2]
QUESTIONS = [
    {"id": f"q{n}", "question": f"Who painted picture {n}?", "answers": ["Ada"],
     "passages": [{"title": f"Picture {n}", "text": f"Picture {n} was painted by Ada."}]}
    for n in range(2)
]  # fmt: skip


def entry(number: int, event: str, digests: dict[str, str], **fields: Any) -> Entry:
    return Entry(
        sequence=number, time="2026-01-01T00:00:00.000Z", event=event, digests=digests, previous="0",
        hash=str(number), **fields,
    )  # fmt: skip


RESULTS = st.lists(
    st.dictionaries(st.sampled_from(["weights", "rollouts"]), st.sampled_from("abc"), min_size=1), max_size=4
)


@given(RESULTS, RESULTS)
def test_first_step_with_other_results_is_named(first: list[Any], second: list[Any]) -> None:
    original, repeated = ({f"s{number}": results for number, results in enumerate(steps)} for steps in (first, second))
    found = Reproduction(
        original="a", repeated="b", head="0:0", steps=compare_steps(original, repeated), circumstances=()
    )
    wanted = [number < len(second) and results == second[number] for number, results in enumerate(first)]
    assert [step.equal for step in found.steps] == wanted
    assert found.equal == all(wanted)
    assert (found.first.step if found.first else None) == (None if all(wanted) else f"s{wanted.index(False)}")


def test_results_are_those_of_a_steps_last_attempt_without_times_and_settings(tmp_path: Path) -> None:
    def scored(folder: Path, value: float, inputs: str) -> dict[str, Any]:
        (folder / "eval-final").mkdir(parents=True, exist_ok=True)
        (folder / "eval-final/scores.json").write_text(json.dumps({"inputs": inputs, "metrics": {"em": value}}))
        entries = [
            entry(0, "step train", {"weights": "of a killed attempt"}),
            entry(1, "step train", {"weights": "w", "figures": inputs}),
            entry(2, "step eval-final", {"policy": "w", "scores": inputs, "settings": inputs}),
            entry(3, "run ended: FINISHED", {}),
        ]
        return dict(results_of(folder, entries))

    first = scored(tmp_path / "first", 0.5, "a")
    assert first["train"] == {"weights": "w"}
    assert list(first) == ["train", "eval-final"]
    assert first == scored(tmp_path / "same", 0.5, "b")
    assert first != scored(tmp_path / "other", 0.6, "a")


def test_circumstances_name_code_packages_and_machine_and_not_who_ran_it() -> None:
    def start(**origin: str) -> list[Entry]:
        return [
            entry(0, "run started", {}, origin={"user": "u", "host": "h", "source": "s", "hardware": "cpu", **origin})
        ]

    packages = {"torch": "1", "numpy": "2"}
    same = {"python": "3.11.7", "packages": packages}
    assert compare_circumstances(start(), start(user="v", host="i"), (same, same)) == ()
    other = {"python": "3.12.1", "packages": {"torch": "2", "scipy": "1"}}
    found = compare_circumstances(start(), start(source="t", hardware="gpu"), (same, other))
    assert {(one.name, one.original, one.repeated) for one in found} == {
        ("source", "s", "t"), ("hardware", "cpu", "gpu"), ("python", "3.11.7", "3.12.1"), ("package torch", "1", "2"),
        ("package numpy", "2", "not recorded"), ("package scipy", "not recorded", "1"),
    }  # fmt: skip


def invoke(*arguments: object) -> None:
    CliRunner().invoke(app, ["reproduce", *map(str, arguments)], catch_exceptions=False)


def test_run_that_cannot_be_reproduced_is_refused_before_anything_runs(tmp_path: Path) -> None:
    recipe = load_recipe(HOME / "pipelines/arena/world.yaml").resolved()
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text(json.dumps(recipe))
    sealed(run)
    with pytest.raises(UserError, match="has not finished"):
        invoke(run, "-o", tmp_path / "again")
    Journal(run_file(run)).append("ended", status="FINISHED")
    with pytest.raises(UserError, match="is the run to reproduce"):
        invoke(run, "-o", run)
    with refused("run.unknown"):
        invoke(tmp_path / "nothing", "-o", tmp_path / "again")
    own = tmp_path / "own"
    own.mkdir()
    (own / "recipe.json").write_text(json.dumps({"pipeline": "mine", "name": "x", "parameters": {}}))
    Journal(run_file(sealed(own))).append("ended", status="FINISHED")
    with pytest.raises(UserError, match="is a run of pipeline mine, which hopforge does not ship"):
        invoke(own, "-o", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def write_questions(path: Path, questions: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(question) + "\n" for question in questions))


def test_evaluation_is_reproduced_until_its_data_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "questions.jsonl"
    write_questions(data, QUESTIONS)
    recipe = HOME / "pipelines/arena/world.yaml"
    succeed_here(
        "evaluate", "hopforge:world-base-arena", "--recipe", recipe, "--dataset", f"jsonl={data}",
        "--workdir", "first", "--environment", "distractor", "--quiet",
    )  # fmt: skip
    again = succeed_here("reproduce", "first", "-o", "again", "--json", "--quiet")
    found = json.loads(again.stdout)
    assert (found["equal"], found["circumstances"]) == (True, [])
    assert {"corpus", "policy", "eval-start"} <= {step["step"] for step in found["steps"]}

    write_questions(data, [QUESTIONS[0], {**QUESTIONS[1], "question": "Who drew picture 1?"}])
    changed = hopforge("reproduce", "first", "-o", "changed", "--quiet", cwd=tmp_path)
    assert changed.returncode == 1, changed.stderr
    assert "first: not reproduced" in changed.stdout
    assert "first difference, in step corpus:\n  eval: " in changed.stdout
    assert "different when the runs began:\n  evaluation file questions.jsonl: " in changed.stdout

    data.unlink()
    missing = hopforge("reproduce", "first", "-o", "missing", "--quiet", cwd=tmp_path)
    assert missing.returncode == 2
    assert "questions.jsonl" in missing.stderr
    assert not (tmp_path / "missing/manifest.jsonl").exists()
