"""A program's threads, notes and end in the report's viewer and in MLflow's traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from platform_sdk.evaluation.report import build_report
from platform_sdk.record_files import read_jsonl, write_jsonl
from platform_sdk.records import ProgramEnd, Rollout, Trajectory, Turn, search_call
from platform_sdk.tracking.traces import pieces
from tests.evaluation.test_report import make_run

NOTE = "temperature: the program sent 0.2; the recipe's 0.9 was used"
END = ProgramEnd(
    status=3, stderr="a last word", notes=(NOTE,), threads=("new", "edited", "template"), measures={"steps": 4.0}
)  # fmt: skip


def thread(id: str) -> Trajectory:
    turns = (
        Turn(speaker="environment", text="Who ?", start=0, end=1, tool_calls=(search_call("before any call"),)),
        Turn(speaker="agent", text=f"said in {id}", start=1, end=2),
    )
    mask, logprobs = (0, 1), (0.0, -0.5)
    return Trajectory(id=id, role="agent", token_ids=(1, 2), agent_mask=mask, logprobs=logprobs, turns=turns)


def of_a_program(rollout: Rollout) -> Rollout:
    main = thread("agent").model_copy(update={"answer": "Ida"})
    others = (thread("agent/1"), thread("agent/2"))
    return rollout.model_copy(update={"main": main, "others": others, "program": END})


def test_report_shows_threads_with_their_reasons_and_the_programs_end(open_page: Any, tmp_path: Path) -> None:
    made = make_run(tmp_path)
    for path in made.glob("*/rollouts.jsonl"):
        write_jsonl(path, Rollout, [of_a_program(rollout) for rollout in read_jsonl(path, Rollout)])
    page = open_page(build_report(made))
    page.locator("#list [role=option]").first.click()
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    shown = page.locator(".viewer").inner_text()
    for text in ("3 threads", "Other threads (2)", "thread: edited", "thread: template", "Program (exit status 3)",
                 NOTE, "steps 4", "a last word", "before any call", "said in agent/2"):  # fmt: skip
        assert text in shown, text
    assert "No answer" not in shown


def test_report_of_a_built_in_agent_has_no_program(open_page: Any, tmp_path: Path) -> None:
    page = open_page(build_report(make_run(tmp_path)))
    page.locator("#list [role=option]").first.click()
    shown = page.locator(".viewer").inner_text()
    assert "thread" not in shown
    assert "exit status" not in shown


def test_trace_has_the_programs_end_and_its_searches_before_the_first_call(tmp_path: Path) -> None:
    path = next(make_run(tmp_path).glob("*/rollouts.jsonl"))
    rollout = of_a_program(next(iter(read_jsonl(path, Rollout))))
    root, *spans = pieces(rollout)
    assert root.attributes["program"]["threads"] == ["new", "edited", "template"]
    assert [span.inputs for span in spans if span.kind == "RETRIEVER"] == [("before any call",)] * 3
    assert sum(span.kind == "LLM" for span in spans) == 3
