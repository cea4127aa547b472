"""Inputs that the steps refuse before anything slow begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.methods.launch import EvaluateStep, launch
from platform_sdk.methods.method import RunContext
from platform_sdk.methods.mygo.method import METHOD
from platform_sdk.methods.mygo.settings import AgentSpec, EvaluationSettings
from platform_sdk.methods.steps import evaluate, online
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Question
from platform_sdk.sampling.pairs import make_pair
from tests.methods.contexts import plain

QUESTION = Question(id="q", text="Who ?", answers=("x",), dataset="world")


@pytest.fixture
def run(tmp_path: Path) -> RunContext[AgentSpec]:
    for part in ("train", "eval"):
        write_jsonl(tmp_path / f"corpus/questions.{part}.jsonl", Question, [QUESTION])
    return METHOD.context(plain(tmp_path, "world-kg", {"split": False}, {}, {}))


def test_two_models_need_two_roles(run: RunContext[AgentSpec], tmp_path: Path) -> None:
    pair = str(make_pair(tmp_path / "policy", "hopforge:world-base", "hopforge:world-base"))
    with pytest.raises(UserError, match=r"agent\.split is false, and a single agent does not use worker_model"):
        evaluate(METHOD, run, "eval-start", pair, EvaluationSettings())
    with pytest.raises(UserError, match="online training trains one model"):
        online(METHOD, run, "online", pair, OnlineSpec(updates=1), EvaluationSettings())


def test_several_processes_with_milvus_lite_are_refused(run: RunContext[AgentSpec]) -> None:
    given = {"processes": 2}
    step = EvaluateStep(
        method="mygo", run_dir=run.run_dir, phase="eval-start", model="hopforge:world-base",
        environment=run.environment, agent={}, sampling={"engine": given}, retrieval={},
        searched_digest=run.searched_digest, seed=0, evaluation={},
    )  # fmt: skip
    with pytest.raises(UserError, match=r"2 processes, but only one at a time can search an index of Milvus Lite"):
        launch(step)
    assert not (run.run_dir / "eval-start/begun.json").exists()
    for retrieval in ({"url": "http://retriever:8080"}, {"uri": "http://milvus:19530"}, {"method": "lexical"}):
        assert METHOD.single_process_reason(step.model_copy(update={"retrieval": retrieval}).context.retrieval) is None


def test_evaluation_without_questions_is_an_error(run: RunContext[AgentSpec], tmp_path: Path) -> None:
    write_jsonl(tmp_path / "corpus/questions.eval.jsonl", Question, [])
    with pytest.raises(UserError, match="there are no questions for eval; see dataset in the recipe"):
        evaluate(METHOD, run, "eval-start", "hopforge:world-base", EvaluationSettings())
