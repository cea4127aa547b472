"""``hopforge graph`` on a small generated world."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.recipe import load_recipe
from platform_sdk.data.corpus import Corpus
from platform_sdk.errors import UserError
from platform_sdk.graph.graph import Graph
from platform_sdk.records import Passage

RECIPE = Path(__file__).resolve().parents[2] / "pipelines/mygo/world-text.yaml"
WORLD = ["--set", "dataset.world.entities=40", "--set", "dataset.world.eval_questions=10"]
FEW = ["--set", "dataset.world.train_questions=20"]


def call(workdir: Path, command: str, *arguments: str, recipe: Path = RECIPE) -> str:
    place = ["--recipe", str(recipe), "--workdir", str(workdir), *WORLD]
    group = [] if command == "search" else ["graph"]
    result = CliRunner().invoke(app, [*group, command, *arguments, *place])
    if result.exception:
        raise result.exception
    return result.stdout


def test_graph_commands_build_export_and_describe_a_graph(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"build it first: hopforge graph build --recipe {RECIPE} --workdir {tmp_path}"):
        call(tmp_path, "stats")
    built = json.loads(call(tmp_path, "build", "--json"))
    assert built.keys() >= {"entities", "hyperedges", "mentions", "digest", "seconds", "peak_mb"}
    opened = Graph.open(tmp_path / "graph")
    assert (built["entities"], built["digest"]) == (len(opened.entity_ids), opened.digest)
    assert json.loads(call(tmp_path, "build", "--json"))["extracted"] == 0

    assert call(tmp_path, "export", "-o", str(tmp_path / "graph.jsonl")).strip() == str(tmp_path / "graph.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "graph.jsonl").read_text().splitlines()]
    entities, edges = rows[: built["entities"]], rows[built["entities"] :]
    assert all(row.keys() == {"entity", "name", "aliases", "embedded"} for row in entities)
    assert all(row.keys() == {"hyperedge", "text", "entities", "passage", "embedded"} for row in edges)
    assert len(edges) == built["hyperedges"]
    name, id = entities[0]["name"], entities[0]["entity"]
    own = {edge["hyperedge"] for edge in edges if id in edge["entities"]}

    shown = json.loads(call(tmp_path, "show", name.upper(), "-o", str(tmp_path / "page.html"), "--json"))
    assert (shown["entity"], {edge["hyperedge"] for edge in shown["hyperedges"]}) == (id, own)
    assert all(edge in (tmp_path / "page.html").read_text() for edge in own)
    assert name in call(tmp_path, "show", id)
    stats = json.loads(call(tmp_path, "stats", "--json"))
    assert stats["hyperedges"] == built["hyperedges"]
    assert stats["maximum_hyperedges_per_entity"] == max(stats["hubs"].values())
    with pytest.raises(UserError, match="no entity 'Nobody'; hopforge graph export lists"):
        call(tmp_path, "show", "Nobody")
    with pytest.raises(UserError, match=f"no entity '{name.lower()}x'; did you mean .*{name}"):
        call(tmp_path, "show", f"{name.lower()}x")

    Corpus([Passage(id="new", title="Nobody", text=f"Nobody knows {name}.")]).save(tmp_path / "more.jsonl")
    added = json.loads(call(tmp_path, "add", str(tmp_path / "more.jsonl"), "--json"))
    assert (added["extracted"], added["hyperedges"]) == (1, built["hyperedges"] + 1)
    assert len(json.loads(call(tmp_path, "show", "Nobody", "--json"))["hyperedges"]) == 1

    # The run's steps have read its graph: it must not change under them.
    (tmp_path / "recipe.json").write_text(json.dumps({"parameters": load_recipe(RECIPE, WORLD[1::2]).parameters}))
    with pytest.raises(UserError, match="contains a run, whose graph must not change; choose another --workdir"):
        call(tmp_path, "add", str(tmp_path / "more.jsonl"))
    assert json.loads(call(tmp_path, "build", "--json"))["digest"] == added["digest"]


def test_graph_of_another_extractor_is_refused(tmp_path: Path) -> None:
    recipe = RECIPE.parents[1] / "prograph/world.yaml"
    call(tmp_path, "build", *FEW, recipe=recipe)
    call(tmp_path, "stats", *FEW, recipe=recipe)
    for command in (["stats"], ["show", "any"], ["export", "-o", str(tmp_path / "graph.jsonl")], ["search", "any"]):
        with pytest.raises(UserError, match="graph.extractor rules, but the recipe's is triples; set graph.extractor"):
            call(tmp_path, *command, *FEW, "--set", "graph.extractor=triples", recipe=recipe)
    assert not (tmp_path / "graph.jsonl").exists()
