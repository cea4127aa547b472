"""``hopforge synthesize`` and ``hopforge export``: one object of figures, and chats as other trainers read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.methods.evipath.export import write_chats
from platform_sdk.methods.evipath.records import Example
from platform_sdk.record_files import RecordError, digest_records, read_jsonl
from platform_sdk.retrieval import load
from tests.methods.evipath.paths import LetterEncoder

ROOT = Path(__file__).parents[3]
SMALL = ["--set", 'dataset.world={"entities": 40, "train_questions": 12, "eval_questions": 2}']


def hopforge(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def synthesised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, Any]]:
    monkeypatch.setattr(load, "load_encoder", lambda **_: LetterEncoder())
    recipe = ROOT / "pipelines/evipath/world.yaml"
    output = hopforge("synthesize", "--recipe", recipe, "--workdir", tmp_path, *SMALL, "--json")
    return tmp_path, json.loads(output)


def test_synthesize_prints_one_object(synthesised: tuple[Path, dict[str, Any]]) -> None:
    folder, figures = synthesised
    kept = list(read_jsonl(folder / "synthesis/examples.jsonl", Example))
    assert (figures["questions"], figures["kept"], figures["rejected"]) == (12, 12, {})
    assert figures["digest"] == digest_records(kept)
    assert len(kept) == 12


def test_lost_examples_are_written_again_and_altered_ones_are_not_exported(
    synthesised: tuple[Path, dict[str, Any]],
) -> None:
    folder, figures = synthesised
    examples = folder / "synthesis/examples.jsonl"
    whole = examples.read_bytes()
    examples.unlink()
    (folder / "synthesis/drafts.seconds.json").write_text("")  # a figure, which a power cut may take
    recipe = ROOT / "pipelines/evipath/world.yaml"
    again = json.loads(hopforge("synthesize", "--recipe", recipe, "--workdir", folder, *SMALL, "--json"))
    assert again["digest"] == figures["digest"]
    assert examples.read_bytes() == whole
    examples.write_bytes(whole.replace(b'thoughts":"', b'thoughts":"So, ', 1))
    with pytest.raises(RecordError, match="was changed after it was written"):
        write_chats(folder, folder / "chats.jsonl", "messages")
    assert not (folder / "chats.jsonl").exists()


def test_export_writes_planner_and_executor_chats(synthesised: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = synthesised
    hopforge("export", folder, "--format", "messages", "-o", folder / "chats.jsonl")
    lines = [json.loads(line) for line in (folder / "chats.jsonl").read_text().splitlines()]
    examples = list(read_jsonl(folder / "synthesis/examples.jsonl", Example))
    assert len(lines) == sum(1 + len(list(example.asked())) for example in examples)
    assert {line["role"] for line in lines} == {"planner", "executor"}
    assert len({line["id"] for line in lines}) == len(lines)
    for line in lines:
        assert set(line) == {"id", "role", "messages"}
        roles = [message["role"] for message in line["messages"]]
        assert roles[0] == "system"
        assert roles[1:] == ["user", "assistant"] * (len(roles) // 2)
    assert lines[0]["messages"][0]["content"] == "Plan : visit a candidate or answer ."  # the recipe's own style


def test_export_as_sharegpt_says_the_same(synthesised: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = synthesised
    for format in ("messages", "sharegpt"):
        hopforge("export", folder / "synthesis", "--format", format, "-o", folder / f"{format}.jsonl")
    ours, theirs = (
        [json.loads(line) for line in (folder / f"{format}.jsonl").read_text().splitlines()]
        for format in ("messages", "sharegpt")
    )
    names = {"system": "system", "human": "user", "gpt": "assistant"}
    for one, other in zip(ours, theirs, strict=True):
        turns = [{"role": names[turn["from"]], "content": turn["value"]} for turn in other["conversations"]]
        assert turns == one["messages"]


def test_export_of_a_folder_without_examples_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run hopforge synthesize first"):
        hopforge("export", tmp_path, "--format", "messages", "-o", tmp_path / "chats.jsonl")


def test_synthesize_with_another_methods_recipe_is_refused(tmp_path: Path) -> None:
    recipe = ROOT / "pipelines/mygo/world.yaml"
    with pytest.raises(UserError, match="has no synthesis"):
        hopforge("synthesize", "--recipe", recipe, "--workdir", tmp_path, *SMALL)


def test_rules_refuse_hotpotqa_and_say_what_it_needs(tmp_path: Path) -> None:
    record = {"_id": "h", "question": "Who?", "answer": "x", "supporting_facts": [["T", 0]], "context": [["T", ["x."]]]}
    (tmp_path / "hotpot.json").write_text(json.dumps([record]))
    dataset = json.dumps({"format": "hotpotqa", "train": str(tmp_path / "hotpot.json")})
    recipe = ROOT / "pipelines/evipath/hotpot-llama3.1-8b.yaml"
    options = ["--set", f"dataset={dataset}", "--set", "dataset.eval=[]", "--set", "dataset.corpus=[]"]
    with pytest.raises(UserError, match="hotpotqa has neither .* needs an LLM"):
        hopforge(
            "synthesize", "--recipe", recipe, "--workdir", tmp_path / "run", *options, "--set", "teacher=rules",
            "--set", "teacher_model=hopforge:world-base",
        )  # fmt: skip
