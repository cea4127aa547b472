"""A run's model as a directory that transformers loads, with a card of its lineage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.sampling.models import load_model, resolve, weights_digest
from platform_sdk.tracking import manifest
from tests.methods.finished_run import finished_run, seal_run

SCORES = {"n": 6, "shown": ["em", "turns"], "metrics": {
    "em": {"value": 0.5, "low": 0.25, "high": 0.75}, "turns": {"value": 2.5, "low": 2.0, "high": 3.0}}}  # fmt: skip


def export(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["export", *map(str, arguments)])
    return done.stdout if done.exit_code == 0 else f"refused: {done.exception}"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = finished_run(tmp_path_factory.mktemp("runs"), "arena")
    (made / "eval-final/scores.json").write_text(json.dumps(SCORES))
    seal_run(made)
    return made


def with_policy(run_dir: Path, folder: Path, policy: Path) -> Path:
    """Copy a run; its last evaluation is then one of another policy."""
    copied = folder / "run"
    shutil.copytree(run_dir, copied)
    spec = copied / "eval-final/evaluate-step.json"
    spec.write_text(json.dumps(json.loads(spec.read_text()) | {"model": str(policy)}))
    seal_run(copied)
    return copied


def test_the_model_is_the_trained_one_and_its_card_says_where_it_comes_from(run_dir: Path, tmp_path: Path) -> None:
    assert "a model for transformers and vLLM" in export(run_dir, "-o", tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert AutoTokenizer.from_pretrained(tmp_path / "model").chat_template
    trained = resolve("hopforge:world-base-arena")
    assert weights_digest(model) == weights_digest(trained)
    card = (tmp_path / "model/README.md").read_text()
    for line in (
        "| base model | hopforge:world-base-arena |", "| questions | 4 to train, 6 to evaluate |", "| seed | 0 |",
        "| em | 50.0 (25.0 to 75.0) |", "| turns | 2.50 (2.00 to 3.00) |", f"| weights | `{weights_digest(trained)}` |",
        f"| manifest's head | `{manifest.read(run_dir)[-1].head}` |", ' "name": "arena-world",',
    ):  # fmt: skip
        assert line in card.splitlines(), line
    assert f"{tmp_path}/model: exists already" in export(run_dir, "-o", tmp_path / "model")


def test_the_model_before_training_has_the_scores_it_began_with(run_dir: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run_dir, copied)
    (copied / "eval-start/scores.json").write_text(json.dumps(SCORES))
    seal_run(copied)
    assert "refused" not in export(copied, "--before", "-o", tmp_path / "model")
    card = (tmp_path / "model/README.md").read_text()
    assert "| | eval-start |" in card.splitlines()
    assert "policy that training by hopforge began with" in card
    shutil.rmtree(copied / "eval-final")  # as a pipeline that trains nothing
    seal_run(copied)
    assert "refused" not in export(copied, "-o", tmp_path / "baseline")
    assert "policy that hopforge evaluated and did not train" in (tmp_path / "baseline/README.md").read_text()
    assert "--before applies to the model only" in export(
        copied, "--before", "--format", "messages", "-o", tmp_path / "chats"
    )


def test_an_adapter_is_merged(run_dir: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    base = load_model("hopforge:world-base-arena")
    adapted = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.peft_config["default"].base_model_name_or_path = "hopforge:world-base-arena"
    adapted.save_pretrained(tmp_path / "adapter")
    copied = with_policy(run_dir, tmp_path, tmp_path / "adapter")
    assert "refused" not in export(copied, "-o", tmp_path / "model")
    assert not (tmp_path / "model/adapter_config.json").exists()
    tokens = torch.arange(20)[None]
    written = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    with torch.no_grad():
        said, meant = written(tokens).logits, adapted(tokens).logits
        plain = load_model("hopforge:world-base-arena")(tokens).logits
    assert (said - meant).abs().max() < 0.05 * (plain - meant).abs().max()  # it is written in the base's 16 bits


def test_a_pair_has_a_directory_for_each_role(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "pair").mkdir()
    for role, name in (("planner", "world-base"), ("worker", "world-base-arena")):
        (tmp_path / "pair" / role).symlink_to(resolve(f"hopforge:{name}"))
    copied = with_policy(run_dir, tmp_path, tmp_path / "pair")
    assert "refused" not in export(copied, "-o", tmp_path / "model")
    assert weights_digest(tmp_path / "model/worker") == weights_digest("hopforge:world-base-arena")
    assert (
        'planner_model = AutoModelForCausalLM.from_pretrained("DIRECTORY/planner")'
        in (tmp_path / "model/README.md").read_text()
    )


def test_intact_run_has_its_digest_also_with_altered(run_dir: Path, tmp_path: Path) -> None:
    for arguments in ((), ("--altered",)):
        assert "refused" not in export(run_dir, *arguments, "-o", tmp_path / f"model{len(arguments)}")
    cards = [(tmp_path / folder / "README.md").read_text() for folder in ("model0", "model1")]
    assert cards[0] == cards[1]


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [("eval-final/scores.json", "{}", "n"), ("corpus/digests.json", "{}", "input"), ("corpus/digests.json", "", "is")],
)
def test_model_whose_card_cannot_be_written_is_not_exported(
    name: str, content: str, field: str, run_dir: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run_dir, copied)
    (copied / name).write_text(content)
    assert f"refused: {copied / name}: {field}" in export(copied, "--altered", "-o", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_altered_weights_are_not_exported(run_dir: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run_dir, copied)
    shutil.copytree(resolve("hopforge:world-base"), tmp_path / "other")
    spec = copied / "eval-final/evaluate-step.json"
    spec.write_text(json.dumps(json.loads(spec.read_text()) | {"model": str(tmp_path / "other")}))
    assert "which is no model of this run, so it was altered" in export(copied, "-o", tmp_path / "model")


@pytest.mark.parametrize(
    "name", ["eval-final/scores.json", "recipe.json", "corpus/questions.eval.jsonl", "eval-start/rollouts.jsonl"]
)
def test_run_with_an_altered_file_is_exported_only_on_request_and_its_card_carries_the_warning(
    name: str, run_dir: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run_dir, copied)
    path = copied / name
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "").replace("0.5", "0.99", 1) + " ")
    if name == "recipe.json":
        path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    assert f"{path}: " in (refusal := export(copied, "-o", tmp_path / "model"))
    assert refusal.startswith("refused: ")
    assert "--altered" in refusal
    assert not (tmp_path / "model").exists()
    assert "refused" not in export(copied, "--altered", "-o", tmp_path / "model")
    assert f"**Warning: altered.** {path}: " in (tmp_path / "model/README.md").read_text()
