"""Every method's and strategy's rollouts in the traces and in the report, neither of which knows a method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.evaluation.report import build_report
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Evidence, Rollout, Source, Trajectory, Turn
from platform_sdk.tracking.journal import Event
from platform_sdk.tracking.traces import _trace, call_tree, pieces
from tests.methods.played import played
from tests.methods.react.saying import SOLVED, play
from tests.tracking.rollouts import agent, environment, trajectory


def stepwise() -> Rollout:
    """Several turns with rewards and scored hyperedges of their own; a helper called by a helper; probes."""
    found = Evidence(
        kind="hyperedge", id="h1", text="Ida Roth directed Amberfall .", score=0.75,
        parts={"rank": 0.25, "entities": {"Ida Roth": {"S": 0.5}}}, entities=("Ida Roth", "Amberfall"),
        query_entities=(), source=Source(passage="p7"),
    )  # fmt: skip
    first = agent("<think>t</think><query>Who directed Amberfall ?</query>", queries=("Who directed Amberfall ?",))
    second = agent("ask the reader", calls=("reader",))
    main = trajectory(
        "searcher",
        "main",
        [
            environment("Question"),
            first.model_copy(update={"rewards": {"progress": 0.375, "structure": 1.0}}),
            environment("<knowledge>Ida Roth directed Amberfall .</knowledge>", found),
            second,
            environment("The reader says Lena Roth ."),
            agent("<answer>Lena Roth</answer>"),
        ],
        answer="Lena Roth",
    )
    question = played()["mygo text split"].question
    others = (
        trajectory("reader", "reader", [environment("Read"), agent("look it up", calls=("looker", "reader"))]),
        trajectory("looker", "looker", [environment("Look"), agent("Lena Roth")], answer="Lena Roth"),
        trajectory("probe", "probe-1", [agent("<answer>Ida Roth</answer>", "guess")], answer="Ida Roth", use="scoring"),
    )
    return Rollout(
        question=question, attempt=0, seed=0, main=main, others=others, outcome="answered",
        rewards={"em": 1.0, "progress": 0.375}, weights="w" * 64, corpus="c" * 64,
    )  # fmt: skip


ROLLOUTS = {**played(), "stepwise": stepwise(), "react": play(SOLVED)}
EVENT: Event = {"phase": "eval-final", "time": 1_700_000_000_000}


@pytest.mark.parametrize("name", ROLLOUTS)
def test_traces_hold_every_turn_and_all_evidence_once(name: str) -> None:
    rollout = ROLLOUTS[name]
    laid_out = pieces(rollout)
    by_path = {piece.path: piece for piece in laid_out}
    assert len(by_path) == len(laid_out)
    for piece in laid_out[1:]:
        assert piece.parent in by_path
        assert 0 <= piece.start < piece.end
    said = sorted(turn.text for t in rollout.recorded for turn in t.turns if turn.speaker == "agent")
    assert sorted(piece.outputs for piece in laid_out if piece.kind == "LLM") == said
    shown = [document["id"] for piece in laid_out if piece.kind == "RETRIEVER" for document in piece.outputs]
    assert sorted(shown) == sorted(item.id for t in rollout.recorded for item in t.evidence)
    info, spans = _trace(rollout, "0" * 32, EVENT, "1", "run")
    assert info.client_request_id == f"eval-final/{rollout.id}"
    assert len(spans) == len(laid_out)
    json.dumps([span.to_dict() for span in spans])


def test_traces_of_long_question_ids_fit_mlflows_columns_and_stay_apart() -> None:
    from mlflow.store.tracking.dbmodels.models import SqlTraceInfo

    columns = SqlTraceInfo.__table__.c
    ids = set()
    for number in (1, 2):
        question = ROLLOUTS["stepwise"].question.model_copy(update={"id": f"{'q' * 300}{number}"})
        rollout = ROLLOUTS["stepwise"].model_copy(update={"question": question})
        info, _ = _trace(rollout, "0" * 32, EVENT, "1", "run")
        for field in ("client_request_id", "request_preview", "response_preview"):
            assert len(getattr(info, field)) <= columns[field].type.length
        ids.add(info.client_request_id)
    assert len(ids) == 2


def test_strategy_calls_are_attached_to_the_turn_that_made_them() -> None:
    def calls(name: str) -> dict[tuple[str, int], list[str]]:
        return {key: [t.id for t in called] for key, called in call_tree(ROLLOUTS[name]).called.items()}

    assert calls("arena sure") == {
        ("agent", 1): ["summary-0", "summary-1", "valid-0", "valid-1", "better-0-1", "better-1-0"]
    }
    assert calls("arena self_ask") == {("agent", 1): ["follow-up-0"], ("agent", 3): ["follow-up-1"]}
    assert calls("mygo text split") == {("planner", 1): ["0.0", "0.1"], ("planner", 5): ["2.0"]}
    assert calls("stepwise") == {("main", 3): ["reader"], ("reader", 1): ["looker"]}
    assert [t.id for t in call_tree(ROLLOUTS["stepwise"]).apart] == ["probe-1"]


def test_traces_say_what_a_turn_searched_for_and_was_worth() -> None:
    spans = {piece.name: piece for piece in pieces(ROLLOUTS["stepwise"])}
    first = spans["searcher turn 1"].attributes
    assert (first["queries"], first["rewards"]) == (
        ("Who directed Amberfall ?",),
        {"progress": 0.375, "structure": 1.0},
    )
    [document] = spans["retrieval"].outputs
    assert spans["retrieval"].inputs == ("Who directed Amberfall ?",)
    assert document["metadata"]["parts"] == {"rank": 0.25, "entities": {"Ida Roth": {"S": 0.5}}}
    assert document["metadata"]["query_entities"] == ()
    assert spans["looker looker"].parent == spans["reader reader"].path
    assert "tokens" not in spans["probe turn 1"].attributes
    assert "probe probe-1 (for scoring only)" in spans


def test_search_that_finds_nothing_is_a_span_too() -> None:
    rollout = ROLLOUTS["stepwise"]
    turns = tuple(turn.model_copy(update={"evidence": ()}) for turn in rollout.main.turns)
    main = rollout.main.model_copy(update={"turns": turns})
    found = [each for each in pieces(rollout.model_copy(update={"main": main})) if each.kind == "RETRIEVER"]
    assert [(each.inputs, each.outputs) for each in found] == [(("Who directed Amberfall ?",), [])]


@pytest.fixture
def opened(open_page: Any, tmp_path: Path) -> Any:
    (tmp_path / "run" / "eval-final").mkdir(parents=True)
    (tmp_path / "run" / "recipe.json").write_text(json.dumps({"name": "all", "parameters": {}}))
    numbered = [
        rollout.model_copy(
            update={"question": rollout.question.model_copy(update={"id": f"q{place:02}", "text": name})}
        )
        for place, (name, rollout) in enumerate(ROLLOUTS.items())
    ]
    write_jsonl(tmp_path / "run" / "eval-final" / "rollouts.jsonl", Rollout, numbered)
    return open_page(build_report(tmp_path / "run"))


def test_the_page_shows_every_trajectory_and_all_evidence(opened: Any) -> None:
    detail = opened.locator("#detail")
    for name, rollout in ROLLOUTS.items():
        opened.fill("#search", name)
        assert detail.locator("h3").inner_text() == name
        heads = detail.locator(".trajectory > .who").all_text_contents()
        assert len(heads) == len(rollout.others), name
        assert all(any(head.startswith(f"{t.role} {t.id}") for head in heads) for t in rollout.others), name
        shown = detail.locator("ul.evidence > li, .passage, .subgraph[open] .edge").count()
        assert shown == sum(len(t.evidence) for t in rollout.recorded), name


def test_the_page_shows_rewards_of_turns_parts_of_scores_and_what_is_apart(opened: Any) -> None:
    opened.fill("#search", "stepwise")
    detail = opened.locator("#detail")
    assert detail.locator(".steps thead th").all_inner_texts() == ["step", "", "progress", "structure"]
    assert detail.locator(".steps tbody td.n").all_inner_texts()[:2] == ["0.375", "1"]
    assert detail.locator(".steps .did").first.inner_text() == "Who directed Amberfall ?"
    drawing = detail.locator(".subgraph")
    assert drawing.locator(".edge .words").inner_text() == "rank 0.25"
    assert drawing.locator(".entity bdi").all_inner_texts() == ["Ida Roth", "Amberfall"]
    assert "No entity of the graph is linked from the query." in drawing.inner_text()
    drawing.locator(".same summary").click()
    assert "passage p7" in drawing.locator(".whole").inner_text()
    assert drawing.locator(".same tr:not(.whole) td:nth-child(2)").all_inner_texts() == ["0.5", "–"]
    apart = detail.locator("details.apart")
    assert apart.get_attribute("open") is None
    assert "for scoring only" in str(apart.text_content())
    tokens = sum(sum(t.agent_mask) for t in ROLLOUTS["stepwise"].recorded if t.id != "probe-1")
    assert f"{tokens} sampled tokens" in detail.inner_text()


def test_tool_calls_are_spans_and_are_shown_with_their_results(opened: Any) -> None:
    [piece] = [piece for piece in pieces(ROLLOUTS["react"]) if piece.kind == "TOOL"]
    assert (piece.name, piece.inputs, piece.outputs) == ("calculator", {"expression": "1957 - 1923"}, "34")
    assert (piece.attributes, piece.error) == ({"value": 34.0}, None)
    opened.fill("#search", "react")
    assert opened.locator("#detail .tool").all_inner_texts() == ["calculator 1957 - 1923 = 34"]


def test_turns_that_call_each_other_in_a_circle_are_shown_once() -> None:
    one = Trajectory(
        role="a", id="a", token_ids=(1,), agent_mask=(1,), logprobs=(-1.0,),
        turns=(Turn(speaker="agent", text="a", start=0, end=1, calls=("b",)),),
    )  # fmt: skip
    two = one.model_copy(update={"id": "b", "turns": (one.turns[0].model_copy(update={"calls": ("b", "a")}),)})
    rollout = ROLLOUTS["stepwise"].model_copy(update={"main": one, "others": (two,)})
    assert [piece.path for piece in pieces(rollout)][1:] == [
        "rollout/turn 0", "trajectory b", "trajectory b/turn 0"
    ]  # fmt: skip
