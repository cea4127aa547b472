"""What the steps refuse before anything slow begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.recipes.mygo.settings import EvaluationSpec
from platform_sdk.recipes.mygo.steps import Setting, evaluate, online
from platform_sdk.records import Question, write_jsonl
from platform_sdk.sampling.pairs import make_pair

QUESTION = Question(id="q", text="Who ?", answers=("x",), dataset="world")


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    for part in ("train", "eval"):
        write_jsonl(tmp_path / f"corpus/questions.{part}.jsonl", Question, [QUESTION])
    return Setting.read(tmp_path, "world-kg", {"split": False}, {}, {}, "c" * 64, 0)


def test_two_models_need_two_roles(setting: Setting, tmp_path: Path) -> None:
    pair = str(make_pair(tmp_path / "policy", "hopforge:world-base", "hopforge:world-base"))
    with pytest.raises(UserError, match=r"agent\.split is false, and one agent has no use for a worker_model"):
        evaluate(setting, "eval-start", pair, EvaluationSpec())
    with pytest.raises(UserError, match="GRPO trains one model"):
        online(setting, "online", pair, OnlineSpec(updates=1), EvaluationSpec())


def test_no_questions(setting: Setting, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "corpus/questions.eval.jsonl", Question, [])
    with pytest.raises(UserError, match="there are no questions for eval; see dataset in the recipe"):
        evaluate(setting, "eval-start", "hopforge:world-base", EvaluationSpec())
