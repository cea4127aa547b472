"""Measures of an evaluation where a language model judges, asked over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.judge import JudgeSpec
from platform_sdk.methods.arena.measures import measures
from platform_sdk.methods.arena.rewards import rewards
from platform_sdk.methods.arena.settings import METRICS, NAMED, AgentSpec
from tests.evaluation.judging import Server, judge_server
from tests.methods.arena.responses import rollout_of

__all__ = ["judge_server"]  # a fixture


def test_verdicts_and_unreadable_replies_are_metrics_of_their_own(server: Server, tmp_path: Path) -> None:
    server.replies = {"Bo Li": "Hard to say."}
    spec = AgentSpec()
    judge = JudgeSpec(url=server.url, model="judge-1", cache=str(tmp_path))
    answers = ("it was Ann Lee", "Bo Li", "Cy")
    rollouts = [rollout_of(f"<analysis>a</analysis><answer>{answer}</answer>", answer=answer) for answer in answers]
    rollouts = [rollout.model_copy(update={"rewards": rewards(rollout, spec)}) for rollout in rollouts]
    found = measures(spec, judge, rollouts)
    assert [(values["em"], values["judge"], values["no_verdict"]) for values in found] == [
        (0, 1, 0),
        (0, 0, 1),
        (0, 0, 0),
    ]
    assert [values["arena_judge"] for values in found] == [1, 0, 0]
    assert "no_verdict" not in measures(spec, None, rollouts)[0]
    assert found[0].keys() <= NAMED | METRICS  # no own reward may take such a name


TABLE_8 = """\
*************Consider a knowledge Q&A RAG task to test the capability of a testing model, the correct answer list \
is:*************
['Ann Lee', 'A. Lee']



*************Here is the model's response:*************
<analysis>see Ann Lee</analysis>



*************Please check if the model's answer is correct. As long as the model's answer hits any item (or synonym) \
in the correct answer list, it can be considered correct. You only need to answer "yes" or "no".*************"""


def test_the_papers_judge_reads_the_whole_response_in_the_papers_prompt(server: Server, tmp_path: Path) -> None:
    spec = AgentSpec()
    judge = JudgeSpec(url=server.url, model="judge-1", cache=str(tmp_path))
    rollout = rollout_of("<analysis>see Ann Lee</analysis>")  # holds no answer that could be parsed
    [found] = measures(spec, judge, [rollout.model_copy(update={"rewards": rewards(rollout, spec)})])
    assert (found["judge"], found["arena_judge"]) == (0, 1)
    assert [request["messages"] for request in server.requests] == [[{"role": "user", "content": TABLE_8}]]


def test_arena_scores_are_reported_beside_the_official_ones() -> None:
    # The paper's normaliser puts a space for the hyphen, HotpotQA's deletes it: "Ann-Lee" is "ann lee", or "annlee".
    spec = AgentSpec()
    rollout = rollout_of("<answer>Ann-Lee</answer>", answer="Ann-Lee")
    [found] = measures(spec, None, [rollout.model_copy(update={"rewards": rewards(rollout, spec)})])
    assert (found["em"], found["f1"], found["arena_em"], found["arena_f1"]) == (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("named", "precision", "recall"),
    [
        ("[5,2]", 1, 1),
        ("[2]", 1, 0.5),
        ("[2,5,5,7]", 2 / 3, 1),
        ("[1,2,99]", 1 / 3, 0.5),
        ("[7]", 0, 0),
        ("[]", 0, 0),
        ("2", 0, 0),
    ],
)
def test_named_passages_are_compared_with_the_gold_ones(named: str, precision: float, recall: float) -> None:
    spec = AgentSpec()
    rollout = rollout_of(f"<relevance>{named}</relevance><analysis></analysis><answer>Ann</answer>", answer="Ann")
    [found] = measures(spec, None, [rollout.model_copy(update={"rewards": rewards(rollout, spec)})])
    assert (found["evidence_precision"], found["evidence_recall"]) == (precision, recall)
