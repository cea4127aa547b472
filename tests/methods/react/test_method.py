"""Requirements of the method on the retrieval, and a small run of the world recipe that is killed and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import SamplingSpec
from platform_sdk.errors import UserError
from platform_sdk.methods.method import RunContext, load_method
from platform_sdk.methods.react.settings import AgentSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from tests.chaos.command import kill_short_run


@pytest.mark.parametrize(
    ("tools", "retrieval", "message"),
    [
        (["search"], "none", "retrieval.method none: the tool search has nothing to search"),
        (
            ["calculator"],
            "lexical",
            "agent.tools: without search, retrieval.method lexical is never used",
        ),
        (["search"], "triples", "the search tool gives a query alone; choose a method that searches by the query"),
        (["search", "calculator"], "passages", None),
        (["calculator"], "none", None),
    ],
)
def test_search_and_retrieval_method_must_fit(tools: list[str], retrieval: str, message: str | None) -> None:
    context: RunContext[Any] = RunContext(
        run_dir=Path("run"), environment="world-text",
        agent=AgentSpec.model_validate({"tools": [{"type": name} for name in tools]}), sampling=SamplingSpec(),
        retrieval=RetrievalSpec.model_validate({"method": retrieval}), searched_digest="c", seed=0,
    )  # fmt: skip
    method = load_method("react")
    if message is None:
        method.check(context)
        return
    with pytest.raises(UserError) as caught:
        method.check(context)
    assert message in str(caught.value)


@pytest.mark.slow  # every method's run is killed: only here are tools called
@pytest.mark.e2e(minutes=1)
def test_killed_run_with_tools_resumes_to_the_same_end(tmp_path: Path) -> None:
    undisturbed, killed = kill_short_run("react", tmp_path)
    assert (undisturbed["strikes"], len(killed["strikes"])) == ([], 3)
    rollouts = [
        rollout
        for file in sorted((Path(undisturbed["folder"]) / "run").glob("online/rollouts/*.jsonl"))
        for rollout in read_jsonl(file, Rollout)
    ]
    calls = [call for rollout in rollouts for turn in rollout.main.turns for call in turn.tool_calls]
    assert {"search", "calculator"} <= {call.tool for call in calls}
    assert all(call.evidence for call in calls if call.tool == "search" and not call.error)
