"""``hopforge lineage``: the graph of digests across runs, its targets and its forms."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.files import sha256
from platform_sdk.lineage.graph import Edge, Graph, Node, build_graph, read_graph
from platform_sdk.lineage.page import build_page
from platform_sdk.lineage.targets import find_targets
from platform_sdk.lineage.text import lines, mermaid, trees
from platform_sdk.lineage.uses import find_uses
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Evidence
from platform_sdk.tracking import manifest, step_run
from platform_sdk.training.online.preparation import PreparedGroup
from tests.lineage.runs import BASE, write_dataset, write_run
from tests.tracking.rollouts import agent, environment, rollout, trajectory


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset and the run ``first``; tests change copies of the run."""
    root = tmp_path_factory.mktemp("original")
    write_run(root / "runs/first", write_dataset(root / "data"))
    return root


@pytest.fixture
def data(original: Path) -> Iterator[Path]:
    yield original / "data"
    write_dataset(original / "data")


@pytest.fixture
def folder(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Path(shutil.copytree(original / "runs", tmp_path / "runs"))


def kinds(graph: Graph) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in graph.nodes.values():
        found.setdefault(node.kind, set()).add(node.digest)
    return found


def test_origins_of_a_run_reach_its_dataset_files(folder: Path, data: Path) -> None:
    graph = read_graph(folder)
    [scores] = find_targets("first", graph, folder, down=False)
    assert graph.nodes[scores].kind == "scores"
    part = graph.reachable([scores], down=False)
    assert set(kinds(part)) == {
        "scores", "model", "selection", "rollouts", "index", "passages", "training questions", "evaluation questions",
        "training file", "evaluation file", "passages file",
    }  # fmt: skip
    assert kinds(part)["training file"] == {sha256(data / "train.jsonl")}
    steps = {(graph.nodes[edge.source].kind, graph.nodes[edge.target].kind): edge.step for edge in part.edges}
    assert steps["training file", "training questions"] == "corpus"
    assert steps["selection", "model"] == "train-warmup"
    assert ("training file", "passages") not in steps
    assert ("training file", "evaluation questions") not in steps


def test_changed_byte_of_a_dataset_file_changes_exactly_the_dependent_digests(folder: Path, data: Path) -> None:
    path = data / "train.jsonl"
    path.write_text(path.read_text().replace("town 0", "town 9"))
    write_run(folder / "second", data)
    graph = read_graph(folder)
    versions = find_targets(str(path), graph, folder, down=True)
    assert len(versions) == 2
    assert {graph.nodes[version].runs for version in versions} == {("first",), ("second",)}
    found = kinds(graph)
    changed = {"training file", "training questions", "rollouts", "selection", "scores"}
    same = {"evaluation file", "passages file", "evaluation questions", "passages", "index"}
    assert {kind for kind in found if len(found[kind]) == 2} == changed
    assert {kind for kind in found if len(found[kind]) == 1} == same
    assert len(found["model"]) == 3  # the base model of both runs, and a trained one for each
    for version in versions:
        runs = {edge.run for edge in graph.reachable([version], down=True).edges}
        assert runs == set(graph.nodes[version].runs)


def test_base_model_from_another_run_joins_the_lineages(folder: Path, data: Path, tmp_path: Path) -> None:
    [first] = [digest for digest in kinds(read_graph(folder))["model"] if digest != BASE]
    second = write_run(folder / "second", data, base=first)
    graph = read_graph(folder)
    part = graph.reachable([second], down=False)
    assert {edge.run for edge in part.edges} == {"first", "second"}
    assert BASE in part.nodes
    down = graph.reachable([BASE], down=True)
    assert second in down.nodes
    assert len([node for node in down.nodes.values() if node.kind == "scores"]) == 2


def test_file_in_a_run_and_prefix_of_its_digest_name_the_same_node(folder: Path) -> None:
    graph = read_graph(folder)
    path = folder / "first/warmup/model/model.safetensors"
    [model] = find_targets(str(path), graph, folder, down=False)
    assert graph.nodes[model].names == ("first/warmup/model",)
    assert find_targets(sha256(path)[:16], graph, folder, down=False) == [model]
    assert find_targets(model[:10], graph, folder, down=False) == [model]
    assert find_targets(str(folder / "first/warmup/model"), graph, folder, down=False) == [model]


def test_entries_of_format_1_have_a_lineage(tmp_path: Path) -> None:
    run_dir = tmp_path / "old"
    manifest.record(run_dir, "step policy", {"base_weights": "a" * 64})
    manifest.record(run_dir, "step sample-warmup", {"policy": "a" * 64, "rollouts": "b" * 64})
    manifest.record(run_dir, "step score-warmup", {"rollouts": "b" * 64, "selected": "c" * 64})
    trained = {"parent_weights": "a" * 64, "selected": "c" * 64, "weights": "d" * 64}
    manifest.record(run_dir, "step train-warmup", trained)
    graph = build_graph({"old": manifest.read(run_dir)})
    assert {(edge.source[0], edge.target[0]) for edge in graph.edges} == {
        ("a", "b"), ("b", "c"), ("a", "d"), ("c", "d"),
    }  # fmt: skip


def test_training_that_leaves_the_weights_unchanged_gives_a_finite_tree(tmp_path: Path) -> None:
    run_dir = tmp_path / "same"
    manifest.record(run_dir, "step policy", {"base_weights": "a" * 64})
    manifest.record(run_dir, "step sample-warmup", {"policy": "a" * 64, "rollouts": "b" * 64})
    manifest.record(run_dir, "step score-warmup", {"rollouts": "b" * 64, "selected": "b" * 64})
    unchanged = {"parent_weights": "a" * 64, "selected": "b" * 64, "weights": "a" * 64}
    manifest.record(run_dir, "step train-warmup", unchanged)
    graph = build_graph({"same": manifest.read(run_dir)})
    [tree] = trees(graph, ["a" * 64], down=False)
    assert [line.count("see above") for line in lines(tree)] == [0, 0, 1]


def test_tree_shows_repeated_nodes_once(folder: Path) -> None:
    graph = read_graph(folder)
    starts = find_targets("first", graph, folder, down=False)
    text = [line for tree in trees(graph, starts, down=False) for line in lines(tree)]
    assert text[0].startswith("scores ")
    assert sum("passages file" in line for line in text) == 1
    assert any(line.endswith("see above") and " index " in line for line in text)


def test_tree_of_thousands_of_models_in_a_row_is_printed_and_shown(tmp_path: Path) -> None:
    digests = [f"{number:064x}" for number in range(3_000)]
    nodes = {digest: Node(digest=digest, kind="model", names=(), runs=("long",)) for digest in digests}
    edges = tuple(Edge(source=a, target=b, run="long", step="train") for a, b in pairwise(digests))
    found = trees(Graph(nodes=nodes, edges=edges), digests[-1:], down=False)
    [text] = [list(lines(tree)) for tree in found]
    assert text[0] == f"model {digests[-1][:12]}"
    assert text[-1].endswith(f"   └─ model {digests[0][:12]} (long: train)")
    assert build_page("long", found, down=False).count("</ul></details></li>") == len(digests) - 1


def test_mermaid_escapes_names(folder: Path) -> None:
    graph = read_graph(folder)
    node = next(iter(graph.nodes.values()))
    odd = node.model_copy(update={"names": ('a"b<c>#',)})
    text = mermaid(Graph(nodes={odd.digest: odd}))
    assert "a#quot;b#lt;c#gt;#35;" in text


def test_command_prints_tree_json_and_flowchart(folder: Path) -> None:
    runner = CliRunner()
    options = ["--folder", str(folder)]
    tree = runner.invoke(app, ["lineage", "first", *options])
    assert tree.exit_code == 0, tree.output
    assert "(first: train-warmup)" in tree.output
    found = json.loads(runner.invoke(app, ["lineage", "first", "--json", "--down", *options]).output)
    assert found["direction"] == "down"
    assert {node["kind"] for node in found["nodes"]} >= {"training file", "model", "scores"}
    assert {"source", "target", "run", "step"} == set(found["edges"][0])
    assert runner.invoke(app, ["lineage", "first", "--mermaid", *options]).output.startswith("flowchart LR\n")


@pytest.mark.parametrize("target", ["absent", "ffffffff", "", "x/1"])
def test_unknown_target_gives_one_sentence(folder: Path, target: str) -> None:
    with pytest.raises(UserError) as error:
        find_targets(target, read_graph(folder), folder, down=False)
    assert "\n" not in str(error.value)
    assert "no run" in str(error.value)


def test_manifest_of_random_bytes_gives_one_sentence(folder: Path) -> None:
    (folder / "first/manifest.jsonl").write_bytes(b"\x00\xff{]\n")
    with pytest.raises(UserError, match=r"manifest\.jsonl:1: not a manifest entry") as error:
        read_graph(folder)
    assert "\n" not in str(error.value)


def test_uses_of_a_question_are_found_by_id_and_text(folder: Path, data: Path) -> None:
    graph = read_graph(folder)
    [first] = [digest for digest in kinds(graph)["model"] if digest != BASE]
    second = write_run(folder / "second", data, base=first)
    graph = read_graph(folder)
    found = find_uses(folder, graph, question="t1")
    uses = {(use.relation, use.run): use for use in found.uses}
    assert set(uses) == {(what, run) for what in ("learned from", "sampled in training") for run in ("first", "second")}
    assert uses["learned from", "first"].model == first
    assert uses["learned from", "first"].successors == (second,)
    assert find_uses(folder, graph, question="who founded THE town 1") == found
    # t3 was sampled but not selected
    assert {use.relation for use in find_uses(folder, graph, question="t3").uses} == {"sampled in training"}
    [run_1, run_2] = find_uses(folder, graph, question="e0").uses
    assert (run_1.relation, run_1.model, run_2.model) == ("evaluated on", first, second)


def test_uses_of_a_passage_and_missing_files_are_reported(folder: Path) -> None:
    graph = read_graph(folder)
    assert {use.relation: use.records for use in find_uses(folder, graph, passage="p1").uses} == {
        "sampled in training": 1, "learned from": 1, "evaluated on": 1,
    }  # fmt: skip
    assert not find_uses(folder, graph, passage="p0").uses
    (folder / "first/warmup/selected.jsonl").unlink()
    assert find_uses(folder, graph, passage="p1").unread == (str(folder / "first/warmup/selected.jsonl"),)


def test_passage_that_only_a_completion_retrieved_was_learned_from(folder: Path) -> None:
    shown = Evidence(kind="passage", id="p0", title="P0", text="Text 0.", score=1.0)
    plain = rollout(1)
    branched = plain.model_copy(
        update={
            "attempt": 1,
            "others": (
                *plain.others,
                trajectory("agent", "branch-2-0", [environment("told", shown), agent("said")], use="branch"),
            ),
        }
    )
    group = PreparedGroup(question=plain.question.id, rollouts=(plain, branched), requests=2, tokens=9)
    write_jsonl(folder / "first/online/rollouts/prepared/0001.jsonl", PreparedGroup, [group])
    with step_run(folder / "first", "online") as step:
        step.record_digests(weights="e" * 64)
        step.seal(folder / "first/online")
    [use] = find_uses(folder, read_graph(folder), passage="p0").uses
    assert (use.relation, use.model, use.records) == ("learned from", "e" * 64, 1)
    assert use.file == "online/rollouts/prepared/0001.jsonl"


def test_evaluation_between_updates_is_a_use(folder: Path) -> None:
    (folder / "first/eval-u0001").mkdir()
    (folder / "first/eval-u0001/rollouts.jsonl").write_bytes((folder / "first/eval-final/rollouts.jsonl").read_bytes())
    with step_run(folder / "first", "online") as step:
        step.record_digests(weights="e" * 64)
        step.seal(folder / "first/eval-u0001/rollouts.jsonl")
    uses = find_uses(folder, read_graph(folder), question="e0").uses
    assert {use.relation for use in uses} == {"evaluated on"}
    assert ("e" * 64, "eval-u0001/rollouts.jsonl") in {(use.model, use.file) for use in uses}


def test_altered_rollouts_are_not_searched(folder: Path) -> None:
    (folder / "first/eval-final/rollouts.jsonl").write_bytes(b"{}\n\xff\n")
    with pytest.raises(UserError, match=r"eval-final/rollouts\.jsonl: was altered after step eval-final"):
        find_uses(folder, read_graph(folder), question="e0")


def test_page_nests_a_disclosure_for_each_node(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "lineage.html"
    done = CliRunner().invoke(app, ["lineage", "first", "--html", str(page), "--folder", str(folder)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert text.count("<details") == len(done.output.splitlines())
    assert text.count("<details") == text.count("</details>")
    assert BASE in text


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["first", "--question", "t1"],
        ["first", "--json", "--mermaid"],
        ["--passage", "p1", "--down"],
        ["first", "--up", "--down"], ["--question", ""],
    ],
)  # fmt: skip
def test_contradicting_options_give_one_sentence(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["lineage", *arguments])
    assert isinstance(done.exception, UserError)
    assert "\n" not in str(done.exception)
