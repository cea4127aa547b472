"""A study's file and the cells it unrolls to, and its cells as runs of a toy pipeline."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from platform_sdk.cli import app
from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.retrieval.index import method_of
from platform_sdk.studies.cells import run_cells
from platform_sdk.studies.study import Cell, load_study
from tests.commands import command_line
from tests.e2e.runs import ROOT, environment
from tests.kubeflow.toy import write_toy
from tests.process_watch import wait_for

SHIPPED = sorted(ROOT.glob("studies/*.yaml"))


def write_study(folder: Path, name: str = "study", **changes: Any) -> Path:
    """Write a study of the toy with two axes and two seeds; ``changes`` replace fields."""
    document = {
        "title": "Toy",
        "recipe": str(write_toy(folder)),
        "settings": {"iterations": 1},
        "axes": {
            "rate": {"low": {"settings": {"rate": 0.1}}, "high": {"settings": {"rate": 0.9}}},
            "batch": {"3": {}, "5": {"settings": {"spec.batch_size": 5, "iterations": 2}}},
        },
        "seeds": [0, 1],
        **changes,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def hopforge(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command_line(*arguments), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def test_a_study_unrolls_to_every_combination_with_every_seed(tmp_path: Path) -> None:
    path = write_study(tmp_path, without=[{"rate": "high", "batch": "3"}])
    study = load_study(path, tmp_path, ["spec.epochs=7"])
    cells = {(cell.place, cell.seed): cell.recipe.parameters for cell in study.cells}
    places = [("low", "3"), ("low", "5"), ("high", "5")]
    assert list(cells) == [(place, seed) for place in places for seed in (0, 1)]
    found = {key: (p["rate"], p["spec"]["batch_size"], p["iterations"], p["seed"]) for key, p in cells.items()}
    # The study's settings, then those of the axes in their order; the base recipe's struct keeps its other fields.
    assert found[("low", "3"), 0] == (0.1, 3, 1, 0)
    assert found[("high", "5"), 1] == (0.9, 5, 2, 1)
    assert {p["spec"]["epochs"] for p in cells.values()} == {7}
    assert len({cell.run_dir for cell in study.cells}) == 6


def test_a_cell_is_found_by_its_recipe_whatever_the_study(tmp_path: Path) -> None:
    first = load_study(write_study(tmp_path), tmp_path)
    axes = {"step": {"bold": {"settings": {"rate": 0.9, "spec.batch_size": 3}}}}
    other = load_study(write_study(tmp_path, "other", axes=axes, seeds=[1]), tmp_path)
    [same] = [cell for cell in first.cells if (cell.place, cell.seed) == (("high", "3"), 1)]
    assert other.cells[0].run_dir == same.run_dir


def test_a_cell_has_the_environment_of_its_runs_and_the_place_of_its_data_does_not_name_it(tmp_path: Path) -> None:
    recipe = str(ROOT / "pipelines/mygo/world.yaml")
    path = write_study(tmp_path, recipe=recipe, settings={}, axes={"size": {"small": {}}}, seeds=[4])
    here, there = (load_study(path, tmp_path, (), {"HOPFORGE_DATA": place}).cells[0] for place in ("/here", "/there"))
    assert (here.recipe.parameters["data_dir"], there.recipe.parameters["data_dir"]) == ("/here", "/there")
    assert here.run_dir == there.run_dir


def test_a_level_starts_from_the_model_of_another_cell(tmp_path: Path) -> None:
    recipe = str(ROOT / "pipelines/mygo/world.yaml")
    axes = {
        "data": {"in": {}, "out": {"model_of": {"data": "in"}, "settings": {"iterations": 0}}},
        "size": {"small": {}, "large": {"settings": {"agent.top_k": 9}}},
    }
    study = load_study(write_study(tmp_path, recipe=recipe, settings={}, axes=axes, seeds=[4]), tmp_path)
    cells = {cell.place: cell for cell in study.cells}
    assert list(cells)[:2] == [("in", "small"), ("in", "large")]
    for size in ("small", "large"):
        assert cells["out", size].needs is cells["in", size]
        assert cells["out", size].recipe.parameters["model"] == f"run:{cells['in', size].run_dir}"


@pytest.mark.parametrize("names", [["a", "b", "c"], ["a", "c", "b"]])
def test_model_of_a_cell_that_has_another_cells_model_is_refused(tmp_path: Path, names: list[str]) -> None:
    levels = {"a": {}, "b": {"model_of": {"step": "a"}}, "c": {"model_of": {"step": "b"}}}
    axes = {"step": {name: levels[name] for name in names}}
    recipe = str(ROOT / "pipelines/mygo/world.yaml")
    with pytest.raises(UserError, match="c: model_of names b, which is excluded or itself has a model_of"):
        load_study(write_study(tmp_path, recipe=recipe, settings={}, axes=axes, seeds=[4]), tmp_path)


def test_a_level_names_the_parameter_that_gets_another_cells_model(tmp_path: Path) -> None:
    axes: dict[str, Any] = {
        "paths": {
            "demonstrations": {},
            "own": {"model_of": {"paths": "demonstrations"}, "model_parameter": "teacher_model"},
        }
    }
    recipe = str(ROOT / "pipelines/evipath/world.yaml")
    path = write_study(tmp_path, recipe=recipe, settings={}, axes=axes, seeds=[4])
    teacher, own = load_study(path, tmp_path).cells
    assert (own.needs, own.recipe.parameters["teacher_model"]) == (teacher, f"run:{teacher.run_dir}")
    assert own.recipe.parameters["model"] == teacher.recipe.parameters["model"]
    assert load_study(path, tmp_path / "others").cells[1].run_dir.name == own.run_dir.name
    assert load_study(path, tmp_path, ["teacher_model=run:/results"]).cells[1].needs is None


def test_a_cell_with_another_ones_model_is_the_same_however_the_folder_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_two_stages(tmp_path)
    short, whole, elsewhere = (
        load_study(path, folder).cells[1] for folder in (Path("runs"), tmp_path / "runs", tmp_path / "others")
    )
    assert short.recipe == whole.recipe
    assert short.run_dir.name == whole.run_dir.name == elsewhere.run_dir.name


def test_a_named_model_takes_the_place_of_another_cells(tmp_path: Path) -> None:
    path = write_two_stages(tmp_path)
    out = load_study(path, tmp_path, ["model=run:/results/in"]).cells[1]
    assert (out.place, out.needs, out.recipe.parameters["model"]) == (("out",), None, "run:/results/in")


def write_two_stages(folder: Path) -> Path:
    """Write a study whose cell ``out`` starts from the model of the cell ``in``."""
    axes = {"data": {"in": {}, "out": {"model_of": {"data": "in"}, "settings": {"iterations": 0}}}}
    recipe = str(ROOT / "pipelines/mygo/world.yaml")
    return write_study(folder, recipe=recipe, settings={}, axes=axes, seeds=[4])


def test_cell_with_the_model_of_a_failed_cell_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_two_stages(tmp_path)
    monkeypatch.chdir(tmp_path)
    ran = []

    def run(cell: Cell) -> None:
        ran.append(cell.place)
        raise UserError("no memory")

    errors = [error for _, error in run_cells(load_study(path, Path("runs")).cells, run)]
    assert ran == [("in",)]
    assert errors == ["no memory", "needs the model of in, seed 4, which failed"]


def test_cell_with_another_cells_model_is_submitted_when_that_run_has_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kfp_server_api", reason="the extra [cluster] is not installed")
    from tests.kubeflow.remote.kfp_server import KfpServer

    monkeypatch.setattr("platform_sdk.kubeflow.training_job.kueue.check_queueing", lambda job: "")
    path, runs = write_two_stages(tmp_path), tmp_path / "runs"
    with KfpServer(namespaces=("team-a",)) as kfp:
        cluster = ["--cluster", str(ROOT / "pipelines/cluster.yaml"), "-n", "team-a", "--host", kfp.url]

        def study(command: str, *options: str) -> Result:
            return CliRunner().invoke(app, ["study", command, str(path), "--folder", str(runs), *options])

        alone = study("run", *cluster, "--only", "data=out")
        assert (alone.exit_code, kfp.runs) == (1, [])
        assert "needs the model of in, seed 4, which is not submitted; submit that cell first" in alone.stderr
        waiting = study("run", *cluster)
        [first] = kfp.runs
        assert waiting.exit_code == 1
        assert f"whose run {first['display_name']} is PENDING; repeat the command" in waiting.stderr
        first["state"] = "FAILED"
        assert "is FAILED; repeat the command" in study("run", *cluster).stderr
        kfp.runs.clear()
        assert "is deleted; repeat the command" in study("run", *cluster).stderr
        kfp.runs.append(first)
        first["state"] = "SUCCEEDED"
        done = study("run", *cluster)
        assert done.exit_code == 0, done.output
        _, second = kfp.runs
        study("run", *cluster)
        assert len(kfp.runs) == 2
    cells = load_study(path, runs).cells
    model = f"run:/workspace/runs/{cells[0].recipe.name}-{first['run_id']}"
    assert model in second["runtime_config"]["parameters"].values()
    shown = json.loads(study("status", "--json").stdout)["cells"]
    assert [(one["state"], one["run_dir"]) for one in shown] == [
        ("submitted", str(runs / f"{cell.recipe.name}-{run['run_id']}"))
        for cell, run in zip(cells, (first, second), strict=True)
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"baseline": {"rate": "middle"}}, "baseline: rate has no middle; choose low, high"),
        ({"without": [{"size": "3"}]}, "without: size is not an axis; choose rate, batch"),
        ({"published": [{"rate": "low", "em": 1}]}, "published: a row lacks batch"),
        ({"axes": {"rate": {"low": {"model_parameter": "judge"}}}}, "model_parameter: needs model_of"),
        (
            {
                "axes": {
                    "rate": {"low": {}, "high": {"model_of": {"rate": "low"}, "model_parameter": "judge"}},
                    "batch": {"3": {}, "5": {"model_of": {"batch": "3"}}},
                },
                "without": [{"rate": "high", "batch": "3"}, {"rate": "low", "batch": "5"}],
            },
            r"high · 5: its levels have different model_parameter \(judge, model\)",
        ),
        ({"settings": {"seed": 5}}, "settings: set the seeds in seeds"),
        ({"settings": {"spec.batch": 3}}, r"spec\.batch: there is no such field.*\n.*cell low · 3"),
    ],
)
def test_a_wrong_study_says_what_is_wrong(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        load_study(write_study(tmp_path, **changes), tmp_path)
    # The message and its notes, as the command line prints them.
    assert re.search(said, "\n".join([str(error.value), *getattr(error.value, "__notes__", [])]))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_studies_are_whole(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    study = load_study(path, tmp_path)
    assert len({cell.run_dir for cell in study.cells}) == len(study.cells), "two cells are one and the same run"
    measured = {name for row in study.document.published for name in row} - study.document.axes.keys()
    assert measured <= set(study.document.metrics)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_cells_of_shipped_studies_have_the_world_of_their_baselines(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``study table`` refuses to compare different questions, but only after the cells have run."""
    monkeypatch.chdir(ROOT)
    study = load_study(path, tmp_path)
    worlds = {cell.place: cell.recipe.parameters["dataset"].get("world") for cell in study.cells}
    compared = [(place, base) for place in study.places if (base := study.baseline(place))]
    assert [(place, base) for place, base in compared if worlds[place] != worlds[base]] == []


def test_cells_of_world_baselines_decode_answers_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    cells = load_study(ROOT / "studies/world-baselines.yaml", tmp_path).cells
    assert {cell.recipe.parameters["evaluation"]["temperature"] for cell in cells} == {0.0}


def test_seed_of_a_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="set the seeds in the study's file"):
        load_study(write_study(tmp_path), tmp_path, ["seed=3"])


def test_published_values_are_found_by_levels_that_look_like_numbers(tmp_path: Path) -> None:
    axes = {"rate": {0.5: {}, "1.0": {"settings": {"rate": 0.9}}, 2: {"settings": {"rate": 0.8}}}}
    rows = [{"rate": 0.5, "em": 40}, {"rate": "1.0", "em": 50}, {"rate": 2, "em": 60}]
    study = load_study(write_study(tmp_path, axes=axes, published=rows), tmp_path)
    assert [study.published(place, "em") for place in study.places] == [40, 50, 60]


def test_cluster_only_settings_without_a_cluster_are_refused(tmp_path: Path) -> None:
    arguments = ["study", "run", str(write_study(tmp_path)), "--queue", "team", "--experiment", "e"]
    with pytest.raises(UserError, match=r"^--queue, --experiment: needs a cluster; add --cluster FILE"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_an_unknown_level_is_refused_alongside_a_known_one(tmp_path: Path) -> None:
    arguments = ["study", "status", str(write_study(tmp_path)), "--only", "rate=low", "--only", "rate=hihg"]
    message = "^--only rate=hihg: rate has no level 'hihg' in study; its levels are high, low$"
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        (["-o", "table.md"], "# Toy\n"),
        (["-o", "table.TEX"], "% Toy\n"),
        (["-o", "table.csv"], "rate,batch,metric,"),
        (["-o", "table.html"], "<!doctype html>"),
        (["-o", "table.md", "--format", "csv"], "rate,batch,metric,"),
        (["-o", "table.pdf", "--json"], "{\n"),
    ],
)
def test_a_table_is_written_as_its_file_is_named(tmp_path: Path, options: list[str], begins: str) -> None:
    path = write_study(tmp_path)
    options[1] = str(tmp_path / options[1])
    CliRunner().invoke(app, ["study", "table", str(path), *options], catch_exceptions=False)
    assert Path(options[1]).read_text().startswith(begins)


def test_a_table_of_no_known_format_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "table.pdf"
    with pytest.raises(
        UserError, match=r"table.pdf: the suffix names no known format; add --format with one of markdown"
    ):
        CliRunner().invoke(
            app, ["study", "table", str(write_study(tmp_path)), "-o", str(output)], catch_exceptions=False
        )
    assert not output.exists()


@pytest.mark.slow  # the killed study shows cells that are found again
def test_a_failed_cell_does_not_lose_the_others(tmp_path: Path) -> None:
    axes = {"mode": {"bug": {"settings": {"mode": "bug"}}, "well": {}}}
    path = write_study(tmp_path, axes=axes, settings={"rate": 0.5}, seeds=[3])
    runs = tmp_path / "runs"
    process = hopforge("study", "run", path, "--folder", runs)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "ZeroDivisionError: a bug" in said
    assert "1 of 2 cells failed: bug, seed 3" in said
    _, well = load_study(path, runs).cells
    assert (well.run_dir / "make.txt").read_text().count("\n") == 1
    # Another study finds the finished cell, and does not run it again.
    other = write_study(tmp_path, "other", axes={"kind": {"plain": {}}}, settings={"rate": 0.5}, seeds=[3])
    process = hopforge("study", "run", other, "--folder", runs)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert f"{well.run_dir}: already finished" in said
    assert (well.run_dir / "make.txt").read_text().count("\n") == 1
    shown = json.loads(CliRunner().invoke(app, ["study", "status", str(path), "--folder", str(runs), "--json"]).stdout)
    assert [(cell["place"], cell["state"]) for cell in shown["cells"]] == [(["bug"], "stopped"), (["well"], "finished")]
    # An altered cell is shown as one, beside the others.
    (well.run_dir / "recipe.json").write_text("{}")
    done = CliRunner().invoke(app, ["study", "status", str(path), "--folder", str(runs), "--json"])
    assert done.exit_code == 1
    states = json.loads(done.stdout)["cells"]
    assert [cell["state"] for cell in states] == ["stopped", "altered"]
    assert "recipe.json" in states[1]["error"]
    assert f"error: well, seed 3: {well.run_dir}" in done.stderr


def test_a_killed_study_resumes_with_the_cell_it_was_at(tmp_path: Path) -> None:
    axes = {"mode": {"well": {}, "slow": {"settings": {"mode": "slow"}}}}
    path = write_study(tmp_path, axes=axes, settings={"rate": 0.5}, seeds=[0])
    runs = tmp_path / "runs"
    well, slow = load_study(path, runs).cells
    process = hopforge("study", "run", path, "--folder", runs)
    wait_for(lambda: (slow.run_dir / "pid").exists(), seconds=300)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    process = hopforge("study", "run", path, "--folder", runs)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert f"{well.run_dir}: already finished" in said
    assert (well.run_dir / "make.txt").read_text().count("\n") == 1
    assert (slow.run_dir / "use.txt").read_text().count("\n") == 3
    # A finished run that was moved into another study's folder is finished there.
    moved = tmp_path / "moved" / well.run_dir.name
    moved.parent.mkdir()
    well.run_dir.rename(moved)
    shown = json.loads(
        CliRunner().invoke(app, ["study", "status", str(path), "--folder", str(moved.parent), "--json"]).stdout
    )
    assert {tuple(cell["place"]): cell["state"] for cell in shown["cells"]}[("well",)] == "finished"


def test_distractor_cells_of_evipath_read_all_of_a_questions_own_passages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figure 4 of the paper: the question's own passages are the search result; HotpotQA has 10, MuSiQue 20."""
    monkeypatch.chdir(ROOT)
    study = load_study(ROOT / "studies/evipath-main.yaml", tmp_path)
    found = set()
    for cell in study.cells:
        if not cell.place[0].endswith("distractor"):
            continue
        parameters = cell.recipe.parameters
        retrieval = RetrievalSpec.model_validate(parameters["retrieval"])
        assert method_of(parameters["environment"], retrieval).name == "contexts"
        assert not parameters["dataset"].get("corpus"), "another corpus than the questions' own passages"
        found.add((cell.place[0], parameters["agent"]["top_k"]))
    assert found == {("HotpotQA, distractor", 10), ("MuSiQue, distractor", 20)}
