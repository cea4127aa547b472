"""One changed byte of a dataset's file is followed through a real run to its weights and scores.

Expected differences follow from what each step reads, and are written down in ``DEPENDS``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.world import generate
from platform_sdk.files import sha256
from platform_sdk.lineage.graph import Graph, build_graph, read_graph
from platform_sdk.lineage.targets import find_targets
from platform_sdk.records import Question
from platform_sdk.tracking import manifest, seals
from tests.e2e.runs import TINY_MYGO, content, rollouts, run_here

pytestmark = [pytest.mark.e2e(minutes=2), pytest.mark.slow]

TRAIN, EVAL, CORPUS = "train.jsonl", "eval.jsonl", "corpus.jsonl"
FILES = (TRAIN, EVAL, CORPUS)
TRAINED, ALL = {TRAIN, CORPUS}, {TRAIN, EVAL, CORPUS}
DEPENDS: list[tuple[str, set[str]]] = [
    (r".*: settings|policy: .*", set()),
    (r".*: (reads |wrote .*/|)triples(\.jsonl)?", set()),
    (r".*/model/(?!model\.safetensors).*", set()),
    (rf"corpus: reads ({'|'.join(FILES)})", set()),  # the file itself, see ``expected``
    (r"corpus: wrote corpus/digests.json", ALL),
    (r"corpus: (train|wrote corpus/questions.train.jsonl)|.*: reads train", {TRAIN}),
    (r"corpus: (eval|wrote corpus/questions.eval.jsonl)|.*: reads eval", {EVAL}),
    (r"corpus: (passages|wrote corpus/passages.jsonl)|index: reads passages", {CORPUS}),
    (r".*: (reads index|searched|index)", {CORPUS}),
    (r"index: encoder", set()),
    # The warm-up samples from, and trains, the base model.
    (r"(sample|train)-warmup: (reads weights|policy|parent_weights)", set()),
    (r"(sample|score|train)-\S+: .*|eval-\S+: (reads weights|policy)", TRAINED),
    (r"eval-\S+: (scores|wrote .*)", ALL),
    (r"report: .*scores.*", ALL),
]
"""The files that digests depend on, by a pattern of their names; the first one that fits."""
APART = re.compile(
    r"wrote index/"  # the names of a collection's files have the digest of the passages
    r"|wrote .*/(sample|figures|train|training)\.json|wrote .*/steps\.jsonl"  # measured times
    r"|wrote .*/predictions"  # answers only, which may be equal
)
SIZE = {"entities": 40, "train_questions": 12, "eval_questions": 3, "hops": (1, 2)}


def write_files(folder: Path) -> None:
    """Write a generated world as files of one's own."""
    folder.mkdir()
    world = generate(WorldSpec(**SIZE))
    for name, questions in ((TRAIN, world.train), (EVAL, world.eval)):
        _write(folder / name, map(_question, questions))
    _write(folder / CORPUS, ({"id": one.id, "title": one.title, "text": one.text} for one in world.passages))


def _question(one: Question) -> dict[str, Any]:
    return {"id": one.id, "question": one.text, "answers": one.answers, "gold": one.gold_passages}


def _write(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def change_byte(path: Path, id: str, field: str) -> None:
    """Change the last letter of the longest word in a field of a record: a name."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    [line] = [line for line in lines if line["id"] == id]
    word = max(line[field].split(), key=len)
    line[field] = line[field].replace(word, word[:-1] + ("n" if word[-1] != "n" else "m"), 1)
    before = path.read_bytes()
    _write(path, lines)
    after = path.read_bytes()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def run_on_files(run_dir: Path, data: Path, **changes: Any) -> Path:
    dataset = {"format": "jsonl", "train": TRAIN, "eval": EVAL, "corpus": CORPUS}
    reduced = {name: value for name, value in TINY_MYGO.items() if not name.startswith("dataset.")}
    own = {"dataset": dataset, "data_dir": str(data), "selection.questions": 4, "evaluation.greedy": False}
    return run_here("world-text.yaml", run_dir, {**reduced, **own, **changes})


def digests(run_dir: Path, data: Path) -> dict[str, str]:
    """Return the digests of all steps: inputs, results and files."""
    found: dict[str, str] = {}
    for step, entry in seals.last_entries(manifest.read(run_dir)).items():
        found |= {f"{step}: reads {one.name.removeprefix(f'{data}/')}": one.digest for one in entry.inputs}
        found |= {f"{step}: {name}": digest for name, digest in entry.digests.items()}
        found |= {f"{step}: wrote {one.path}": one.sha256 for one in entry.outputs}
        found[f"{step}: settings"] = entry.settings
    return {name: digest for name, digest in found.items() if not APART.search(name)}


def expected(names: Iterable[str], file: str) -> set[str]:
    """Return the names of the digests that depend on a file of the dataset."""
    depends = {name: next(files for pattern, files in DEPENDS if re.fullmatch(pattern, name)) for name in names}
    return {name for name, files in depends.items() if file in files} | {f"corpus: reads {file}"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("changed") / "data"
    write_files(folder)
    return folder


@pytest.fixture(scope="module")
def folder(data: Path) -> Path:
    """Runs before and after a change of each file; each change is undone after its run."""
    runs = data.parent / "runs"
    first = run_on_files(runs / "first", data)
    learned = rollouts(first, "warmup", "selected")[0]
    retrieved = next(one for trajectory in learned.trajectories for one in trajectory.evidence)
    question = json.loads((data / EVAL).read_text().splitlines()[0])["id"]
    for file, id, field in (
        (TRAIN, learned.question.id, "question"), (EVAL, question, "question"), (CORPUS, retrieved.id, "text"),
    ):  # fmt: skip
        before = (data / file).read_bytes()
        change_byte(data / file, id, field)
        run_on_files(runs / file.partition(".")[0], data)
        (data / file).write_bytes(before)
    return runs


@pytest.mark.parametrize("file", FILES)
def test_changed_byte_changes_exactly_the_dependent_digests_down_to_scores(folder: Path, data: Path, file: str) -> None:
    before, after = (digests(folder / name, data) for name in ("first", file.partition(".")[0]))
    assert before.keys() == after.keys()
    assert {name for name, digest in before.items() if after[name] != digest} == expected(before, file)


def test_expectations_cover_weights_rollouts_selection_and_scores(folder: Path, data: Path) -> None:
    names = digests(folder / "first", data)
    for name in ("train-warmup: weights", "score-iteration-01: selected", "sample-iteration-01: rollouts"):
        assert [name in expected(names, file) for file in FILES] == [True, False, True]
    assert all("eval-final: scores" in expected(names, file) for file in FILES)
    assert not any("policy: base_weights" in expected(names, file) for file in FILES)


@pytest.mark.parametrize("file", FILES)
def test_lineage_shows_both_versions_of_the_file_with_what_follows_from_each(
    folder: Path, data: Path, file: str
) -> None:
    graph, changed = read_graph(folder), file.partition(".")[0]
    versions = {
        graph.nodes[version].runs: version for version in find_targets(str(data / file), graph, folder, down=True)
    }
    unchanged = tuple(sorted({"first", *(name.partition(".")[0] for name in FILES)} - {changed}))
    assert {tuple(sorted(runs)) for runs in versions} == {(changed,), unchanged}
    for runs, version in versions.items():
        part = graph.reachable([version], down=True)
        assert {edge.run for edge in part.edges} == set(runs)
        models = {content(folder / run, phase, "train")["weights"] for run in runs for phase in _PHASES}
        assert models & part.nodes.keys() == (set() if file == EVAL else models)
        assert {_scores(folder / run) for run in runs} <= part.nodes.keys()
    shown = CliRunner().invoke(app, ["lineage", str(data / file), "--down", "--folder", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert all(version[:12] in shown.output for version in versions.values())


_PHASES = ("warmup", "iteration-01")


def _scores(run_dir: Path) -> str:
    return sha256(run_dir / "eval-final/scores.json")


def test_model_of_one_run_as_the_base_of_the_next_gives_one_lineage(folder: Path, data: Path) -> None:
    model = folder / "first/iteration-01/model"
    run_on_files(folder / "next", data, model=str(model))
    # The run on other evaluation questions trained an equal model, so it is left out.
    graph = build_graph({name: manifest.read(folder / name) for name in ("first", "next")})
    up = graph.reachable([_scores(folder / "next")], down=False)
    assert {edge.run for edge in up.edges} == {"first", "next"}
    base = content(folder / "first", "iteration-01", "train")["weights"]
    assert _steps(up, base) == {("first", "train-iteration-01")}
    assert sha256(data / TRAIN) in up.nodes
    down = graph.reachable([base], down=True)
    assert content(folder / "next", "iteration-01", "train")["weights"] in down.nodes


def _steps(graph: Graph, digest: str) -> set[tuple[str, str]]:
    """Return the runs and steps that made a node."""
    return {(edge.run, edge.step) for edge in graph.edges if edge.target == digest}
