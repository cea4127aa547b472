"""``hopforge score``: responses made elsewhere, scored against official files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.methods.arena.scoring import score_file
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.record_files import RecordError
from tests.methods.arena.responses import cases

HOME = Path(__file__).parents[3]
RECIPE = HOME / "pipelines/arena/hotpotqa-smollm2.yaml"
CONTEXT = [[f"T{n}", [f"Text {n}."]] for n in range(1, 11)]


def hotpot(id_: str, answer: str = "Ann Lee", **more: Any) -> dict[str, Any]:
    facts = [["T2", 0], ["T5", 3]]
    return {"_id": id_, "question": "Who?", "answer": answer, "supporting_facts": facts, "context": CONTEXT} | more


def musique(id_: str, titles: Sequence[str], gold: Sequence[int]) -> dict[str, Any]:
    """``gold`` are places from 0."""
    return {
        "id": id_,
        "question": "Who?",
        "answer": "Ann Lee",
        "answer_aliases": ["A. Lee"],
        "answerable": True,
        "question_decomposition": [{"question": "", "answer": ""}],
        "paragraphs": [
            {"idx": n, "title": title, "paragraph_text": f"{n}", "is_supporting": n in gold}
            for n, title in enumerate(titles)
        ],
    }


def write(path: Path, records: list[Any], *, lines: bool = True) -> Path:
    path.write_text("\n".join(map(json.dumps, records)) + "\n" if lines else json.dumps(records))
    return path


def said(id_: str, relevance: str, answer: str = "Ann Lee") -> dict[str, str]:
    text = f"<relevance>{relevance}</relevance><analysis>x</analysis><answer>{answer}</answer>"
    return {"id": id_, "response": text}


def test_the_command_prints_rewards_in_the_order_of_the_responses(tmp_path: Path) -> None:
    """Every response of the table, through the files and the command, in one process without torch, mlflow or kfp."""
    every = cases()
    titles = [f"T{n}" for n in range(1, 11)]
    gold = write(tmp_path / "gold.jsonl", [musique(f"q{n}", titles, (1, 4)) for n in range(len(every))])
    order = list(range(len(every)))[::-1]
    responses = write(tmp_path / "responses.jsonl", [{"id": f"q{n}", "response": every[n].text} for n in order])
    code = (
        "import sys; from platform_sdk.cli import app\n"
        f"app(['score', '--recipe', {str(RECIPE)!r}, '--gold', {str(gold)!r}, '--responses', {str(responses)!r}],"
        " standalone_mode=False)\n"
        "print(sorted({'torch', 'mlflow', 'kfp', 'transformers', 'openai'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=HOME)
    *lines, heavy = done.stdout.splitlines()
    assert heavy == "[]"
    found = [json.loads(line) for line in lines]
    assert [list(line) for line in found] == [["id", "format", "accuracy", "relevance", "bonus", "reward"]] * len(every)
    assert [line["id"] for line in found] == [f"q{n}" for n in order]
    for n, line in zip(order, found, strict=True):
        case = every[n]
        worth = [case.strict, case.accuracy, case.relevance, case.bonus(case.strict), case.reward(case.strict)]
        assert list(line.values())[1:] == worth, case.text


def test_passages_count_in_the_files_own_order_and_by_identity(tmp_path: Path) -> None:
    two = hotpot("w") | {"evidences": [["a", "b", "c"]], "evidences_id": [], "type": "compositional"}
    for gold, good, id_ in (
        (write(tmp_path / "h", [hotpot("h", context=CONTEXT[::-1])], lines=False), "[6,9]", "h"),
        (write(tmp_path / "w", [two], lines=False), "[2,5]", "w"),
        # Title A is gold as paragraph 3 and not as paragraph 1.
        (write(tmp_path / "m", [musique("m", ["A", "B", "A"], (1, 2))]), "[2,3]", "m"),
    ):
        [scored] = score_file(AgentSpec(), gold, write(tmp_path / "r", [said(id_, good)]))
        assert scored == {"id": id_, "format": 1, "accuracy": 1, "relevance": 1, "bonus": 10, "reward": 13}
    [scored] = score_file(AgentSpec(), tmp_path / "m", write(tmp_path / "r", [said("m", "[1,2]", "a lee")]))
    assert (scored["relevance"], scored["accuracy"]) == (0.5, 1)


def words(rollout: Any) -> float:
    return float(len(rollout.main.answer.split()))


def test_a_recipes_own_rewards_are_printed_too(tmp_path: Path) -> None:
    spec = AgentSpec.model_validate({"rewards": {"extra": {"words": {"function": f"{__name__}:words", "weight": 0.5}}}})
    gold = write(tmp_path / "gold", [hotpot("q")], lines=False)
    [scored] = score_file(spec, gold, write(tmp_path / "r", [said("q", "[2,5]")]))
    assert list(scored)[-2:] == ["words", "reward"]
    assert (scored["words"], scored["reward"]) == (2, 14)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"id": "q", "response": "x"}', '{"id": "z", "response": "x"}'], r"r:2: id z is not in .*gold"),
        (['{"id": "q", "response": "x"}', "", '{"id": "q", "response": "y"}'], r"r:3: id q .* already, on line 1"),
        (['{"id": "q", "response": "x"'], r"r:1: not valid JSON"),
        (['{"id": "q"}'], r"r:1: .*`response`; a line is"),
        (['{"id": "q", "response": null}'], r"r:1: response: Expected `str`, got `null`"),
        (['{"id": 3, "response": "x"}'], r"r:1: id: Expected `str`, got `int`"),
        (["[1]"], r"r:1: Expected `object`, got `array`"),
    ],
)
def test_a_line_that_cannot_be_scored_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    gold = write(tmp_path / "gold", [hotpot("q")], lines=False)
    responses = tmp_path / "r"
    responses.write_text("\n".join(lines))
    with pytest.raises(RecordError, match=message):
        score_file(AgentSpec(), gold, responses)


def test_files_that_cannot_be_scored_against(tmp_path: Path) -> None:
    responses = write(tmp_path / "r", [said("q", "[1]")])
    with pytest.raises(RecordError, match="not an official question file"):
        score_file(AgentSpec(), write(tmp_path / "nq", [{"question": "?", "answer": ["x"]}]), responses)
    with pytest.raises(RecordError, match="cannot be read"):
        score_file(AgentSpec(), tmp_path / "none", responses)
    bare = hotpot("q", context=[])
    with pytest.raises(UserError, match="question q has no passages"):
        score_file(AgentSpec(), write(tmp_path / "bare", [bare], lines=False), responses)


@pytest.mark.parametrize(
    "file",
    [
        "hotpotqa/hotpot_dev.json",
        "hotpotqa/hotpot_train.json",
        "2wikimultihopqa/dev.json",
        "musique/musique_ans_dev.jsonl",
    ],
)
def test_gold_responses_to_real_questions_are_worth_thirteen(tmp_path: Path, file: str) -> None:
    path = Path(os.environ.get("HOPFORGE_DATA", HOME / "../shared/data")) / file
    if not path.is_file():
        pytest.skip("the real data sets are not here; HOPFORGE_DATA names their folder")
    text = path.read_text()
    records = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    responses = []
    for record in records:
        if "paragraphs" in record:
            gold = [n for n, p in enumerate(record["paragraphs"], start=1) if p["is_supporting"]]
        else:
            titles = {title for title, _ in record["supporting_facts"]}
            gold = [n for n, (title, _) in enumerate(record["context"], start=1) if title in titles]
        responses.append(said(record.get("id") or record["_id"], json.dumps(gold), f"The “{record['answer']}”."))
    scored = score_file(AgentSpec(), path, write(tmp_path / "r", responses))
    assert {line["reward"] for line in scored} == {13}
