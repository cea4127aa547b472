"""``hopforge program check`` runs a recipe's program once, and reports what would harm training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.recipe import load_recipe
from platform_sdk.methods.program.check import check, warnings
from platform_sdk.methods.program.settings import AgentSpec

ROOT = Path(__file__).parents[3]
RECIPE = ROOT / "pipelines/program/world.yaml"
SMALL = ("dataset.world.entities=60", "dataset.world.train_questions=0", "dataset.world.eval_questions=4")


def checked(tmp_path: Path, source: str | None = None, *options: str, recipe: Path = RECIPE) -> Any:
    """Check the recipe's own program, or a script."""
    changes = list(SMALL)
    if source is not None:
        script = tmp_path / "agent.py"
        script.write_text(source)
        changes += [f"agent={json.dumps({'command': ['python', str(script)], 'max_tokens': 24})}"]
    given = [part for change in changes for part in ("--set", change)]
    return CliRunner().invoke(app, ["program", "check", str(recipe), *given, *options])


def test_check_shows_calls_searches_and_answer_of_the_shipped_program(tmp_path: Path) -> None:
    done = checked(tmp_path, None, "--json", "--workdir", str(tmp_path / "kept"))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["outcome"], found["problems"], found["stderr"]) == ("answered", [], "")
    [thread] = found["threads"]
    calls = thread["calls"]
    assert (thread["reason"], len(calls)) == ("new", found["calls"])
    assert sum(call["sampled_tokens"] for call in calls) == found["tokens"]
    queries = [each["arguments"]["query"] for call in calls for each in call["tool_calls"] if each["tool"] == "search"]
    assert len(queries) == found["searches"] > 0
    assert all(query in call["text"] for call, query in zip(calls, queries, strict=False))
    assert (tmp_path / "kept/corpus/digests.json").is_file()
    # The same seed and the kept corpus: the same session, as people read it.
    again = checked(tmp_path, None, "--workdir", str(tmp_path / "kept"))
    assert f"answer: {found['answer']}\n{found['calls']} calls in 1 threads" in again.stdout
    assert all(f"searches: {query.strip()} (2 results)" in again.stdout for query in queries)


CAUTIOUS = """
import json, os, sys
from openai import OpenAI
question = json.load(sys.stdin)["question"]
client = OpenAI()
for part in (question, "Say it again ."):
    messages = [{"role": "user", "content": part}]
    client.chat.completions.create(model="policy", messages=messages, temperature=0.1)
print("Ida Roth")
"""


def test_check_warns_of_a_thread_a_call_and_of_parameters_that_the_recipe_sets(tmp_path: Path) -> None:
    done = checked(tmp_path, CAUTIOUS)
    assert done.exit_code == 0, done.output
    assert "answer: Ida Roth\n2 calls in 2 threads, 0 searches" in done.stdout
    assert "warning: each of the 2 calls is a thread" in done.stdout
    assert "warning: temperature: the program sent 0.1; the recipe's 0.9 was used" in done.stdout
    assert "nothing found" not in done.stdout


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        ("print('Ida Roth')", ["the program requested no completion"]),
        ("pass", ["the program requested no completion", "the program gave no answer"]),
        ("raise SystemExit('no such model')", ["the program requested no completion", "error with exit status 1"]),
    ],
)  # fmt: skip
def test_check_of_a_program_that_teaches_nothing_exits_with_1(tmp_path: Path, source: str, problems: list[str]) -> None:
    done = checked(tmp_path, source)
    assert done.exit_code == 1
    shown = [line for line in done.stdout.splitlines() if line.startswith("problem: ")]
    assert len(shown) == len(problems)
    assert all(problem in line for problem, line in zip(problems, shown, strict=True))
    assert ("no such model" in done.stdout) == ("no such model" in source)


def test_check_asks_the_given_question(tmp_path: Path) -> None:
    source = "import json, sys; print(json.load(sys.stdin)['question'][::-1])"
    done = checked(tmp_path, source, "--question", "Who ?", "--json")
    assert (json.loads(done.stdout)["question"], json.loads(done.stdout)["answer"]) == ("Who ?", "? ohW")


def test_check_of_another_methods_recipe_is_one_error(tmp_path: Path) -> None:
    done = checked(tmp_path, recipe=ROOT / "pipelines/react/world.yaml")
    assert str(done.exception).endswith("is a recipe of the method react; give one of the pipeline program")


def test_warnings_count_threads_by_reason_and_cut_completions(tmp_path: Path) -> None:
    recipe = load_recipe(RECIPE, (*SMALL, "agent.max_tokens=2"))
    session = check(recipe, tmp_path)
    rollout = session.rollout
    [cut] = [warning for warning in session.warnings if "max_tokens" in warning]
    assert cut.startswith("6 of 6 completions reached agent.max_tokens (2)")  # the program's six turns, none finished
    assert rollout.program is not None
    ended = rollout.program.model_copy(update={"threads": ("template", "edited", "template")})
    twisted = rollout.model_copy(update={"program": ended, "others": (rollout.main, rollout.main)})
    found = list(warnings(twisted, AgentSpec(command=("x",))))
    assert ["before 2 of 3 threads" in found[0], "before 1 of 3 threads" in found[1]] == [True, True]
