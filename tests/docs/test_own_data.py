"""Examples of docs/own-data.md, written to files and run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.recipe import load_recipe
from platform_sdk.data.dataset import load_dataset
from platform_sdk.data.questions import load_questions
from platform_sdk.methods.mygo.agent import scored
from platform_sdk.record_files import RecordError
from platform_sdk.records import Rollout, Trajectory
from tests.docs.pages import blocks

PAGE = "own-data.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files, in the folder that its commands are called in."""
    questions, corpus = blocks(PAGE, "json")
    for name in ("train", "eval"):
        (tmp_path / f"{name}.jsonl").write_text(questions)
    (tmp_path / "corpus.jsonl").write_text(corpus)
    (tmp_path / "own-data.yaml").write_text(blocks(PAGE, "yaml")[0])
    (tmp_path / "own_rewards.py").write_text(blocks(PAGE, "python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    monkeypatch.setenv("PYTHONPATH", "")
    return tmp_path


def test_the_page_s_commands_work(folder: Path) -> None:
    for command in blocks(PAGE, "sh")[0].splitlines():
        _, *arguments = shlex.split(command)
        if arguments[0] == "run":  # after recall, which prepared the corpus in the same directory
            arguments += ["--set", "iterations=0", "--set", "prepare=false"]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, (command, done.exception, done.output)
        assert "note" not in done.stderr
    assert (folder / "runs/own-data/eval-final/scores.json").is_file()


def test_the_page_s_questions_and_reward(folder: Path) -> None:
    recipe = load_recipe(folder / "own-data.yaml")
    dataset = load_dataset(recipe.settings("dataset"), folder)
    first, second = dataset.train
    assert (first.id, first.answers, first.gold_passages) == ("q1", ("Ann Lee", "A. Lee"), ("Dawn",))
    assert (first.gold_positions, len(dataset.corpus.passages)) == ((0,), 2)
    assert second.id.startswith("q-")
    spoken = Trajectory(role="planner", id="planner", token_ids=(), agent_mask=(), logprobs=(), turns=(),
                        answer="I think that it was Ann Lee")  # fmt: skip
    rollout = Rollout(question=first, attempt=0, seed=0, main=spoken, outcome="answered", weights="w", corpus="c")
    found = scored(recipe.settings("agent"), rollout)
    assert found["own"] == pytest.approx(0.5 * found["f1"])  # two of seven words: 4/9, halved
    assert found["f1"] == pytest.approx(4 / 9)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"question": "Why?", "answers": [], "id": "x"}', "line 2: answers: needs one answer or more"),
        ('{"question": "Why?", "anwsers": ["a"]}', "line 2: Object"),
        ('{"question": "Why?", "answers": "a"}', "line 2: answers: Expected `array`, got `str`"),
        ('{"question": "Why?", "answers": ["a"], "gold": [3]}', "line 2: gold: 3 is not a position in passages"),
        ('{"question": "Why?", "answers": ["a"], "passages": [{"title": "T", "text": "t"}], "gold": ["S"]}',
         "line 2: gold: no passage has the title 'S'"),
        ('{"question": "Why?", "answers": ["a"], "id": "q1"}', "line 2: id: q1 is another record's too"),
        ("{", "line 2: not valid JSON"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    good = '{"question": "Who?", "answers": ["Ann"], "id": "q1"}'
    (tmp_path / "own.jsonl").write_text(f"{good}\n{line}\n")
    with pytest.raises(RecordError) as caught:
        load_questions(tmp_path / "own.jsonl", "jsonl")
    assert f"own.jsonl: {message}" in str(caught.value)


def test_questions_without_passages_need_a_corpus(folder: Path) -> None:
    (folder / "train.jsonl").write_text('{"question": "Who?", "answers": ["Ann"]}\n')
    (folder / "eval.jsonl").write_text('{"question": "Who?", "answers": ["Ann"]}\n')
    command = ["recall", "--recipe", "own-data.yaml", "--set", "dataset.corpus=[]"]
    assert "searches passages, and there are none; give dataset.corpus" in str(
        CliRunner().invoke(app, command).exception
    )


def test_selecting_by_an_own_reward_needs_one(folder: Path) -> None:
    done = CliRunner().invoke(app, ["validate", "own-data.yaml", "--set", "agent.reward=own_rewards:gone"])
    assert "defines no function, class or value gone at its top level" in str(done.exception)
