"""Tables and pictures of scores in README and docs: equal to the record, between markers, and rewritten in place."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from platform_sdk.record_files import read_jsonl, write_jsonl
from platform_sdk.records import Rollout
from platform_sdk.tracking.runs import start_run, step_run
from tests.evaluation.online_runs import make_online_run
from tests.sealing import sealed

HOME = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def figures() -> Iterator[ModuleType]:
    specification = importlib.util.spec_from_file_location("readme_figures", HOME / "docs/figures.py")
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
    sys.path.insert(0, str(HOME / "docs"))
    try:
        specification.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(HOME / "docs"))


@pytest.fixture(scope="module")
def figure_runs(figures: ModuleType) -> ModuleType:
    return sys.modules["figure_runs"]


@pytest.fixture(scope="module")
def records(figures: ModuleType) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(figures.RECORD.read_text())
    return found


def test_tables_of_all_pages_equal_the_record_and_stand_between_markers(
    figures: ModuleType, records: dict[str, Any]
) -> None:
    assert figures.check(records) == []
    marked = [name for page in figures.PAGES for name in figures.MARKER.findall(page.read_text())]
    assert set(marked) == figures.rendered_tables(records).keys()
    assert records.keys() <= figures.FIGURES.keys()
    assert figures.SUMMARY.studies[:2] == ["world-mygo", "world-grpo"]
    assert figures.FIGURES["world-grpo-cost"].studies == ["world-grpo"]


def test_altered_score_is_named_with_its_page(
    figures: ModuleType, records: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    text = (HOME / "README.md").read_text()
    shown = figures.SUMMARY.render(records)[2].split(" | ")[5]  # the first row's sampled score after training
    page.write_text(text.replace(f"| {shown} |", "| 51.7 (42.9 to 60.4) |"))
    assert page.read_text() != text
    monkeypatch.setattr(figures, "PAGES", (page,))
    assert figures.check(records) == [
        f"{page}: table scores differs from docs/figures.json; run python docs/figures.py --render"
    ]


def test_score_outside_markers_is_named(
    figures: ModuleType, records: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(figures, "PAGES", (page,))
    page.write_text("| method | EM |\n|---|---:|\n| a | 51.7 |\n\n| name | what EM is |\n|---|---|\n| a | b |\n")
    fault = "a table of scores, or a score that is in no table"
    assert figures.check(records) == [f"{page}: {fault}: | method | EM |; add it to docs/figures.py"]
    mean, low, _, high = figures.SUMMARY.render(records)[2].split(" | ")[5].replace("(", "").replace(")", "").split()
    page.write_text(f"MyGO ends at {mean} ({low} to\n{high}), and not at {mean} ({low}\nto 99.9).\n")
    assert figures.check(records) == [f"{page}: {fault}: {mean} ({low} to 99.9); add it to docs/figures.py"]
    difference, low, high = records["world-grpo"]["cells"]["MyGO · 307"]["differences"]["em"]
    page.write_text(f"It ends {difference} points (−{high} to −{low}) below.\n")
    assert figures.check(records) == []


def test_altered_or_missing_picture_is_named(
    figures: ModuleType, records: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "PAGES", ())
    monkeypatch.setattr(figures, "IMAGES", tmp_path)
    for path, content in figures.pictures(records).items():
        path.write_text(content)
    assert figures.check(records) == []
    altered, missing = tmp_path / "world-mygo.svg", tmp_path / "world-grpo.svg"
    altered.write_text(altered.read_text().replace("MyGO", "GRPO"))
    missing.unlink()
    remedy = "differs from docs/figures.json; run python docs/figures.py --render"
    assert set(figures.check(records)) == {f"{altered}: {remedy}", f"{missing}: {remedy}"}


def test_study_without_record_has_neither_table_nor_picture(figures: ModuleType, records: dict[str, Any]) -> None:
    part = {name: record for name, record in records.items() if name != "world-grpo"}
    tables = figures.rendered_tables(part)
    assert figures.FIGURES.keys() - tables.keys() >= {"world-grpo", "world-grpo-cost", "scores"}
    assert "world-mygo" in tables
    assert figures.IMAGES / "world-grpo.svg" not in figures.pictures(part)


def test_picture_has_a_point_for_each_seed_and_the_interval_of_each_mean(figures: ModuleType) -> None:
    cells = {
        "untrained": {
            "em": {"0": 0.0, "1": 50.0}, "em_greedy": {"0": 20.0},
            "intervals": {"em": [-5.0, 55.0], "em_greedy": [10.0, 30.0]},
        },
        "search < calculator": {
            "em": {"0": 100.0}, "em_greedy": {"0": 40.0},
            "intervals": {"em": [90.0, 100.0], "em_greedy": [30.0, 50.0]},
        },
    }  # fmt: skip
    records = {"world-react": {"questions": 200, "cells": cells}}
    picture = figures.FIGURES["world-react"].picture(records)
    assert figures.FIGURES["world-react"].picture(records) == picture
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in root.iter(f"{space}text")]
    assert [text for text in texts if text in ("EM", "greedy EM", *cells)] == ["EM", "greedy EM", *cells]
    starts = [float(text.get("x", "")) for text in root.iter(f"{space}text") if text.text == "0"]
    ends = [float(text.get("x", "")) for text in root.iter(f"{space}text") if text.text == "100"]
    seeds = [float(circle.get("cx", "")) for circle in root.iter(f"{space}circle")]
    assert seeds[:2] == pytest.approx([starts[0], (starts[0] + ends[0]) / 2], abs=0.1)
    assert seeds[2] == pytest.approx(starts[1] + 0.2 * (ends[1] - starts[1]), abs=0.1)
    assert len(seeds) == 5 + 1  # the legend has one
    bar = next(path.get("d") for path in root.iter(f"{space}path") if path.get("class") == "bar")
    assert bar is not None
    assert bar.startswith(f"M{starts[0]:.1f} ")  # an interval is drawn within 0 to 100
    assert bar.endswith(f"H{starts[0] + 0.55 * (ends[0] - starts[0]):.1f}")


def test_page_is_rewritten_between_markers_alone(figures: ModuleType) -> None:
    text = "Before\n<!-- figures: t -->\n| c | n |\n|---|---|\n| a | 1 |\n<!-- end of figures -->\nAfter\n"
    tables = {"t": ["| c | n |", "|---|---|", "| a | 3 |"]}
    assert figures.rendered(text, tables) == text.replace("| a | 1 |", "| a | 3 |")
    assert figures.rendered("| a | 1 |\n", tables) == "| a | 1 |\n"
    with pytest.raises(ValueError, match="figures: u --> names no table; known are t"):
        figures.rendered(text.replace("figures: t", "figures: u"), tables)
    with pytest.raises(ValueError, match="there is no <!-- end of figures --> after <!-- figures: t -->"):
        figures.rendered(text.replace(figures.END, ""), tables)


def test_study_table_shows_measured_intervals_and_marks_one_seed(figures: ModuleType) -> None:
    def row(level: str, values: list[float], paired: dict[str, float] | None) -> dict[str, Any]:
        metric = {"n": 200, "values": values, "mean": 0.5, "low": 0.4, "high": 0.6, "paired": paired}
        calls = {"n": 200, "values": [2.0], "mean": 2.0, "paired": None}
        metrics = {"em": metric, "em_greedy": metric, "tool_calls": calls}
        runs = {str(seed): f"runs/{level}-{seed}" for seed in range(len(values))}
        return {"place": [level], "runs": runs, "metrics": metrics, "cost": None}

    paired = {"difference": 0.1, "low": -0.05, "high": 0.25}
    rows = [row("search and calculator", [0.5, 0.5], None), row("search", [0.6, 0.4], paired)]
    later = {"place": ["untrained"], "runs": {}, "metrics": {}}
    table = figures.FIGURES["world-react"]
    record = table.record([{"rows": [*rows, later], "counts": ["tool_calls"]}], {})
    measured = "60.0, 40.0 | 50.0 (40.0 to 60.0) | +10.0 (−5.0 to +25.0)"
    shown = table.render({"world-react": record})
    assert shown[3] == f"| search | {measured} | {measured} | 2 |"
    one_seed = table.record([{"rows": [rows[0], row("search", [0.5], paired)], "counts": ["tool_calls"]}], {})
    line = table.render({"world-react": one_seed})[3]
    assert line.startswith("| search | 50.0 | 50.0 (40.0 to 60.0, one seed) | +10.0 (−5.0 to +25.0, one seed) |")


def test_record_has_the_time_of_runs_and_the_mean_budget_of_cells(figures: ModuleType, figure_runs: ModuleType) -> None:
    def cost(seconds: float | None, steps: int | None, questions: int, cpu: float | None = None) -> Any:
        seen = {"eval-start": 90, "eval-final": questions}
        return figure_runs.RunCost(seconds, cpu, "2 CPUs", rollouts=1500, optimizer_steps=steps, questions=seen)

    metric = {"n": 200, "values": [0.5, 0.25], "mean": 0.375, "low": 0.3, "high": 0.4, "paired": None}
    reached = {"phase": "eval-start", "cost": {"rollouts": 128}}
    rows = [
        {"place": [name, "211"], "runs": {"0": f"runs/{name}-0", "1": f"runs/{name}-1"}, "metrics": {"em": metric},
         "cost": {"score": 0.3, "reached": reached}}
        for name in ("MyGO", "GRPO", "warm-up")
    ]  # fmt: skip
    costs = {
        "runs/MyGO-0": cost(3600, 40, 400), "runs/MyGO-1": cost(1800, 41, 403),
        "runs/GRPO-0": cost(1800, 40, 300), "runs/GRPO-1": cost(None, None, 300),
        "runs/warm-up-0": cost(0, 2, 90), "runs/warm-up-1": cost(0, 2, 90),
    }  # fmt: skip
    table = figures.FIGURES["world-grpo"]

    def rendered() -> list[str]:
        record = table.record([{"rows": rows, "counts": []}], costs)
        for cell in record["cells"].values():
            cell["em_greedy"] = cell["em"]
            cell["intervals"]["em_greedy"] = cell["intervals"]["em"]
        return table.render({"world-grpo": record})

    cells = table.record([{"rows": rows, "counts": []}], costs)["cells"]
    assert cells["MyGO · 211"]["budget"] == {"rollouts": 1500, "optimizer_steps": 40.5, "training_questions": 401.5}
    assert cells["GRPO · 211"]["budget"] == {"rollouts": 1500, "training_questions": 300}
    assert cells["MyGO · 211"]["cost"] == {"score": 30.0, "rollouts": 128, "training_questions": 90}
    head, _, first, second, *_, line = rendered()
    assert head.endswith("| rollouts | optimiser steps | training questions |")
    assert first.endswith("| 1,500 | 40 | 402 |")
    assert second.endswith("| 1,500 | – | 300 |")
    spent = "2 h 00 min of wall time for 5 of 6 runs (2 CPUs). No time is recorded for 1 run of `GRPO · 211`."
    assert line == f"`python docs/figures.py world-grpo`; {spent}"
    for own, shown in ((1200, "; CPU time of 4 of them 40.0 min."), (None, ".")):
        costs |= {f"runs/{name}": cost(600, 40, 300, own) for name in ("MyGO-0", "GRPO-1")}
        costs |= {f"runs/{name}": cost(600, 40, 300, 0 if own else None) for name in ("MyGO-1", "GRPO-0")}
        line = rendered()[-1]
        assert line == f"`python docs/figures.py world-grpo`; 6 runs, 40.0 min of wall time in all (2 CPUs){shown}"
    costs["runs/MyGO-1"] = cost(None, 40, 300, 60)
    assert "CPU time" not in rendered()[-1]


def test_cpu_time_of_a_run_is_the_sum_of_its_steps_attempts(tmp_path: Path, figure_runs: ModuleType) -> None:
    def burn(step: str, seconds: float) -> None:
        with step_run(tmp_path, step):
            began = time.process_time()
            while time.process_time() - began < seconds:
                pass
            child = f"import time\nwhile time.process_time() < {seconds}: pass"
            subprocess.run([sys.executable, "-S", "-c", child], check=True)

    start_run(tmp_path, {"pipeline": "mygo", "name": "burnt", "parameters": {}}, follow=False)
    burn("corpus", 0.2)
    first = figure_runs.cpu_seconds_of(tmp_path)
    burn("corpus", 0.0)  # a resumed run enters a finished step again
    burn("train", 0.1)
    whole = figure_runs.cpu_seconds_of(tmp_path)
    assert first >= 0.35  # the system counts in hundredths
    assert whole >= first + 0.15


@pytest.mark.parametrize("end", ["killed", "failed"])
def test_cpu_time_of_a_run_with_an_unfinished_attempt_is_unknown(
    tmp_path: Path, figure_runs: ModuleType, end: str
) -> None:
    start_run(tmp_path, {"pipeline": "mygo", "name": "burnt", "parameters": {}}, follow=False)
    if end == "killed":
        program = (
            "import os, signal, sys\nfrom pathlib import Path\nfrom platform_sdk.tracking.runs import step_run\n"
            "with step_run(Path(sys.argv[1]), 'corpus'): os.kill(os.getpid(), signal.SIGKILL)"
        )
        killed = subprocess.run([sys.executable, "-c", program, tmp_path], check=False)
        assert killed.returncode == -signal.SIGKILL
    else:
        with pytest.raises(ValueError, match="wrong"), step_run(tmp_path, "corpus"):
            raise ValueError("wrong")
    with step_run(tmp_path, "corpus"):
        pass
    with step_run(tmp_path, "train"):
        pass
    assert figure_runs.cpu_seconds_of(tmp_path) is None


def test_cost_of_a_run_is_read_from_its_journal_and_rollouts(figure_runs: ModuleType, tmp_path: Path) -> None:
    run = make_online_run(tmp_path, updates=4)
    rollout = next(read_jsonl(run / "online/rollouts/0001.jsonl", Rollout))
    write_jsonl(run / "online/rollouts/0004.jsonl", Rollout, [rollout])  # repeats a question of the first update
    sealed(run)
    (run / "tracking/environment.json").write_text('{"hardware": "2 CPUs"}')
    journal = run / "tracking/run.jsonl"
    events = [json.loads(journal.read_text()) | {"time": 1_000}] + [
        {"event": event, "time": time}
        for event, time in (("ended", 61_000), ("started", 500_000), ("note", 520_000), ("ended", 530_500))
    ]
    journal.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    cost = figure_runs.run_cost(run)
    assert cost.seconds == 90.5  # without the time between the kill and the resumption
    assert (cost.hardware, cost.rollouts, cost.optimizer_steps) == ("2 CPUs", 32, 16)
    assert cost.questions == {"eval-start": 0, "eval-u0002": 2, "eval-final": 3}
    journal.write_text("".join(f"{json.dumps(event)}\n" for event in events[:-1]))
    assert figure_runs.run_cost(run).seconds is None


def test_costs_are_shown_up_to_the_baselines_score(figures: ModuleType) -> None:
    costs = {"score": 30.1, "rollouts": 694.2, "trajectories": 1242, "tokens_sampled": 9, "tokens_trained": 8}
    costs |= {"training_questions": 238}
    cells = {"MyGO · 211": {"cost": costs | {"optimizer_steps": 15}}, "GRPO · 211": {"cost": {"score": 30.1}}, "x": {}}
    lines = figures.FIGURES["world-grpo-cost"].render({"world-grpo": {"cells": cells}})
    assert lines[2:] == [
        "| MyGO | 211 | 30.1 | 694 | 1,242 | 9 | 8 | 15 | 238 |",
        "| GRPO | 211 | 30.1 |" + " not reached |" * 6,
    ]


def test_rows_of_recall_name_their_commands(figures: ModuleType) -> None:
    found = [{"n": 80 + place, "recall": {"2": 0.5, "5": 0.625, "10": 0.75}} for place in range(3)]
    rows = figures.RECALL.record(found)["rows"]
    assert rows[2].startswith("| `hopforge recall --recipe pipelines/mygo/hotpotqa-smollm2.yaml -k 2,5,10")
    assert rows[4].endswith("| 5,976 passages | 82 | 50.0 | 62.5 | 75.0 |")
