"""Every check: a correct path passes all of them, and a path with one fault is rejected for that fault alone."""

from __future__ import annotations

import re

import pytest

from platform_sdk.methods.evipath import prompts
from platform_sdk.methods.evipath.checks import CHECKS, in_question, judged
from platform_sdk.methods.evipath.records import Example
from tests.methods.evipath.paths import FIRST, LIMITS, PATH, with_step, with_sub_question

TRIPLES = tuple(
    item.model_copy(update={"kind": "triple", "title": title, "text": text})
    for item, title, text in zip(
        PATH.pool,
        ("film", "Ida Roth", "Lena Roth"),
        ("Amberfall, is, film", "Amberfall, director, Ida Roth", "Ida Roth, mother, Lena Roth"),
        strict=True,
    )
)
GRAPH_PATH = with_sub_question(
    with_sub_question(
        PATH.model_copy(update={"medium": "kg", "candidates": ("Amberfall",), "pool": TRIPLES}),
        0,
        candidate="Amberfall",
    ),
    1,
    candidate="Ida Roth",
)
FAULTS: dict[str, list[tuple[Example, str]]] = {
    "tags": [
        (with_step(PATH, 0, thoughts="First </think> the director."), "</think> </think>"),
        (with_step(PATH, 1, thoughts="<select>Now her mother."), "<think> <select>"),
        (with_sub_question(PATH, 0, thoughts="<answer>It says so."), "cannot be read"),
        (with_sub_question(PATH, 0, answer=" "), "cannot be read"),
        (with_sub_question(PATH, 0, answer="</answer>"), "cannot be read"),
        (PATH.model_copy(update={"thoughts": "So <think>"}), "<think> <think>"),
    ],
    "action": [
        (with_sub_question(PATH, 0, question='Who directed "Amberfall"?'), "nothing but Search"),
        (with_sub_question(PATH, 0, question=" "), "empty question"),
        (with_step(PATH, 0, asked=(FIRST, FIRST, FIRST)), "at most 2"),
        (with_sub_question(GRAPH_PATH, 1, candidate="Lena Roth"), r"no candidate \[2\]"),
        (PATH.model_copy(update={"steps": ()}), "nothing was asked"),
        (PATH.model_copy(update={"steps": PATH.steps * 2}), "takes 5 turns of at most 4"),
        (PATH.model_copy(update={"answer": " "}), "no answer"),
    ],
    "answer": [(PATH.model_copy(update={"answer": "Lena"}), "'Lena' is not 'Lena Roth'")],
    "selection": [
        (with_sub_question(PATH, 0, selected=(2,)), r"\[2\] is selected among 2"),
        (with_sub_question(PATH, 0, selected=(-1,)), r"\[-1\] is selected"),
        (with_sub_question(PATH, 1, selected=()), "nothing is selected"),
    ],
    "leak": [
        (with_step(PATH, 0, thoughts="Is it Lena Roth?"), "turn 1 says 'Lena Roth'"),
        (with_step(PATH, 0, thoughts="Is it Magdalena Roth?"), "turn 1 says 'Magdalena Roth'"),
        (with_step(PATH, 1, thoughts="Now LENA ROTH."), "turn 2 says 'Lena Roth'"),
        (with_step(PATH, 0, thoughts="Ida Roth made it."), "turn 1 says 'Ida Roth'"),
        (PATH.model_copy(update={"plan": ("the director, Ida Roth",)}), "turn 1 says 'Ida Roth'"),
        (with_sub_question(PATH, 0, question="Did Ida Roth direct Amberfall?"), "turn 1 says 'Ida Roth'"),
        (with_sub_question(PATH, 1, answer="Nobody knows."), "the last turn says 'Lena Roth'"),
    ],
    "pronoun": [
        (with_sub_question(PATH, 1, question="Who is her mother?"), "'her'"),
        (with_sub_question(PATH, 1, question="Who is the mother of this director?"), "'this'"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("path", [PATH, GRAPH_PATH], ids=["text", "graph"])
def test_correct_path_is_kept(path: Example) -> None:
    assert {name: check(path, LIMITS) for name, check in CHECKS.items()} == dict.fromkeys(CHECKS)
    assert judged(path, LIMITS) == path


@pytest.mark.parametrize(
    ("name", "path", "finding"), [(name, *fault) for name, faults in FAULTS.items() for fault in faults]
)
def test_fault_is_found_by_its_own_check_alone(name: str, path: Example, finding: str) -> None:
    # What one check finds may be in the way of others, e.g. a turn that cannot be read has no answer.
    others = {other for other, check in CHECKS.items() if other != name and check(path, LIMITS) is not None}
    rejected = judged(path, LIMITS)
    assert rejected.rejected == name
    assert re.search(finding, rejected.detail), rejected.detail
    assert others <= {"leak", "answer", "action", "tags"} - {name}


def test_every_check_has_a_fault() -> None:
    assert set(FAULTS) | {"prompt"} == set(CHECKS)


def test_prompt_that_holds_more_than_the_question_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(prompts._ACT, "text", "The answer is Lena Roth.")
    assert judged(PATH, LIMITS).detail == "the planner's prompt says 'Lena Roth'"


def test_answer_in_the_question_is_counted_and_no_leak() -> None:
    path = with_step(PATH, 0, thoughts="Lena Roth?").model_copy(update={"question": "Is Lena Roth or Ida Roth older?"})
    assert in_question(path)
    assert not in_question(PATH)
    assert judged(path, LIMITS).kept


def test_yes_and_no_answers_are_not_secrets() -> None:
    path = PATH.model_copy(update={"answers": ("yes",), "answer": "yes", "secrets": ()})
    assert judged(with_step(path, 0, thoughts="Let me see, yes."), LIMITS).kept


def test_pronoun_within_a_name_is_allowed() -> None:
    title = PATH.pool[0].model_copy(update={"title": "The King and his Movie"})
    path = PATH.model_copy(update={"pool": (title, *PATH.pool[1:])})
    assert judged(with_sub_question(path, 0, question="Who directed The King and his Movie?"), LIMITS).kept


def test_rejected_path_keeps_its_first_reason() -> None:
    path = PATH.model_copy(update={"rejected": "unlinked", "answer": "wrong"})
    assert judged(path, LIMITS) is path


def test_only_shown_evidence_is_selected() -> None:
    path = with_sub_question(PATH, 0, selected=(-1, 1, 2))
    asked = next(path.asked())
    assert path.evidence_selected(asked) == (path.evidence(asked)[1],)
