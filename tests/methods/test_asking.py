"""A finished run's agent answers a question, whatever its method."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question, Triple
from tests.methods.finished_run import RECIPES, finished_run


def asked(*arguments: object) -> dict:
    done = CliRunner().invoke(app, ["ask", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


def own_question(run_dir: Path) -> Question:
    return next(iter(read_jsonl(run_dir / "corpus/questions.eval.jsonl", Question)))


@pytest.fixture(scope="module")
def kg_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory.mktemp("runs"), "mygo")


@pytest.mark.parametrize("name", RECIPES)
def test_every_method_answers_one_of_its_questions_and_a_new_one(name: str, tmp_path: Path) -> None:
    run_dir = finished_run(tmp_path, name)
    question = own_question(run_dir)
    known = asked(run_dir, question.text)
    assert known["gold"] == list(question.answers)
    assert known["turns"]
    assert {turn["speaker"] for turn in known["turns"]} == {"agent", "environment"}
    entity = next(iter(read_jsonl(run_dir / "corpus/triples.jsonl", Triple))).head
    new = asked(name, f"Who is the director of {entity} then ?", "--folder", tmp_path)
    assert new["gold"] is None
    assert new["outcome"] in ("answered", "iteration_limit", "context_limit")


def test_search_starts_from_the_named_entities_in_the_question_s_order(kg_run: Path) -> None:
    heads = list(dict.fromkeys(triple.head for triple in read_jsonl(kg_run / "corpus/triples.jsonl", Triple)))
    chosen = [name for name in heads if not any(name != other and name in other for other in heads)][5:0:-1]
    done = CliRunner().invoke(app, ["ask", str(kg_run), f"What do {' , '.join(chosen)} share ?"])
    assert done.exit_code == 0, done.exception
    assert f"note: the search starts from {', '.join(chosen)}\n" in done.stderr


def test_ask_prints_retrieved_triples_after_the_turn_that_searched(kg_run: Path) -> None:
    triple = next(iter(read_jsonl(kg_run / "corpus/triples.jsonl", Triple)))
    done = CliRunner().invoke(app, ["ask", str(kg_run), f"What is the {triple.relation} of {triple.head} ?"])
    assert done.exit_code == 0, done.exception
    assert f"note: the search starts from {triple.head}" in done.stderr
    lines = done.stdout.splitlines()
    said = next(n for n, line in enumerate(lines) if line.startswith("planner: "))
    read = next(n for n, line in enumerate(lines) if f"{triple.head}, {triple.relation}, {triple.tail}" in line)
    assert said < read < len(lines) - 1
    assert any(line.strip().startswith("searches: ") for line in lines)
    turns = asked(kg_run, f"What is the {triple.relation} of {triple.head} ?")["turns"]
    longest = max((" ".join(turn["text"].split()) for turn in turns if turn["speaker"] == "agent"), key=len)
    assert len(longest) > 80
    assert any(line.endswith(longest) for line in lines), "what reads a pipe gets whole lines"


def test_ask_prints_tool_calls_with_their_results(tmp_path: Path) -> None:
    run_dir = finished_run(tmp_path, "react", changes=["dataset.world.years=1", "model=hopforge:world-base-react"])
    texts = [one.text for one in read_jsonl(run_dir / "corpus/questions.eval.jsonl", Question)]
    printed = (
        CliRunner().invoke(app, ["ask", str(run_dir), text, "--temperature", "1", "--seed", str(seed)]).stdout
        for seed, text in enumerate(texts * 3)
    )
    lines = next(text for text in printed if "calls calculator: " in text).splitlines()
    place = next(n for n, line in enumerate(lines) if line.strip().startswith("calls calculator: "))
    assert lines[place + 1].strip().startswith("= ")
    assert any(line.strip().startswith("searches: ") for line in lines)


def test_entity_that_the_graph_lacks_is_refused_with_near_names(kg_run: Path) -> None:
    head = next(iter(read_jsonl(kg_run / "corpus/triples.jsonl", Triple))).head
    done = CliRunner().invoke(app, ["ask", str(kg_run), "Who is it ?", "--entity", f"{head}x"])
    assert f"--entity {head}x: the run's graph has no such entity; did you mean {head}" in str(done.exception)


def test_seeds_matter_above_temperature_0_alone(tmp_path: Path) -> None:
    run_dir = finished_run(tmp_path, "mygo", changes=["agent.planner_tokens=24", "agent.worker_tokens=24"])
    text = own_question(run_dir).text
    greedy = [asked(run_dir, text, "--seed", seed)["turns"] for seed in (0, 1)]
    assert greedy[0] == greedy[1]
    drawn = [asked(run_dir, text, "--seed", seed, "--temperature", 3)["turns"] for seed in (0, 1)]
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: shutil.rmtree(run / "index"), r"index: the run's index is missing; repeat the run's hopforge run"),
        (lambda run: (run / "tracking/run.jsonl").unlink(), r"run\.jsonl: is missing or empty, but steps"),
        (lambda run: (run / "eval-final/evaluate-step.json").write_text(
            (run / "eval-final/evaluate-step.json").read_text().replace("assets/world-base", "assets/gone")),
         r"assets/gone[^ ]*: the weights that eval-final evaluated are missing; run the recipe again"),
        (lambda run: (run / "eval-final/evaluate-step.json").write_text(
            (run / "eval-final/evaluate-step.json").read_text().replace('"top_k": ', '"top_k": 1')),
         r"evaluate-step.json: was altered after step eval-final: its settings are not those recorded; restore it"),
        (lambda run: (run / "recipe.json").unlink(), r"not a run directory \(it contains no recipe.json\)"),
    ],
    ids=["index", "unfinished", "weights", "settings", "recipe"],
)  # fmt: skip
def test_ask_names_the_missing_part_of_a_run(damage: object, message: str, kg_run: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(kg_run, run_dir)
    damage(run_dir)  # type: ignore[operator]
    done = CliRunner().invoke(app, ["ask", str(run_dir), own_question(kg_run).text])
    assert isinstance(done.exception, UserError)
    with pytest.raises(UserError, match=message):
        raise done.exception


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [("mygo-text", "--entity", "is for knowledge graphs, but environment world-text is not one"),
     ("mygo-text", "--passages", "is for agents with given passages, but mygo's searches")],
)  # fmt: skip
def test_ask_options_that_the_agent_does_not_support_are_refused(
    name: str, option: str, message: str, tmp_path: Path
) -> None:
    run_dir = finished_run(tmp_path, name)
    done = CliRunner().invoke(app, ["ask", str(run_dir), "Who wrote it ?", option, "x"])
    assert f"{option} {message}" in str(done.exception)


def test_passages_are_read_from_a_file(tmp_path: Path) -> None:
    run_dir = finished_run(tmp_path, "arena")
    file = tmp_path / "passages.jsonl"
    file.write_text('{"title": "Dawn", "text": "Dawn is a film ."}\n{"title": "Ann", "text": "Ann is a person ."}\n')
    assert [item["title"] for item in asked(run_dir, "What is Dawn ?", "--passages", file)["evidence"]] == [
        "Dawn",
        "Ann",
    ]
    file.write_text('{"title": "Dawn"}\n')
    done = CliRunner().invoke(app, ["ask", str(run_dir), "What is Dawn ?", "--passages", str(file)])
    assert f"{file}: line 1: Object missing required field `text`" in str(done.exception)


def test_a_graph_is_entered_at_an_entity(kg_run: Path) -> None:
    done = CliRunner().invoke(app, ["ask", str(kg_run), "Who wrote it ?"])
    assert "names no entity of the run's graph; name the start with --entity NAME" in str(done.exception)
