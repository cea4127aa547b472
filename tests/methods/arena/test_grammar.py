"""The form of a response: decided case by case, and against another reading of the same rules on any text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.methods.arena.grammar import numbers, parse, well_formed, without_thoughts, write

TAGS = [f"<{slash}{name}>" for name in ("relevance", "analysis", "answer") for slash in ("", "/")]
PIECES = st.lists(
    st.sampled_from([*TAGS, *TAGS, "[1]", "[1,2]", "x", " ", "\n", "\r\n", "<answer", "<Answer>", "<<", "\u200b"]),
    max_size=14,
).map("".join)
WHOLE = st.tuples(
    st.sampled_from(["", " ", "\n", "x"]), st.sampled_from(["", "\n", "x", "<answer>"]), st.text(max_size=5),
    st.sampled_from(["", " ", "\n", " \n x", "\nx", "x", "\r\nx", "\n</answer>"]),
).map("{0[0]}<relevance>[1]</relevance>{0[1]}<analysis>{0[2]}</analysis><answer>a</answer>{0[3]}".format)  # fmt: skip
PUBLISHED = r"^<relevance>[^<]*</relevance>\s*<analysis>[^<]*</analysis>\s*<answer>[^<]*</answer>$"
LAYOUT = r"\s*<relevance>.*?</relevance>\s*<analysis>.*?</analysis>\s*<answer>.*?</answer>"


@given(st.one_of(PIECES, WHOLE, st.text(max_size=20)))
@settings(max_examples=600, deadline=None)
def test_format_equals_a_pattern_over_single_tags(text: str) -> None:
    once = all(text.count(tag) == 1 for tag in TAGS)
    assert well_formed(text, "three_part") == (once and bool(re.fullmatch(LAYOUT + r"\s*", text, re.DOTALL)))
    assert well_formed(text, "three_part", strict=False) == bool(re.match(PUBLISHED, text, re.MULTILINE))


@given(st.sets(st.integers(-3, 10**19)), st.text(max_size=20), st.text(max_size=20))
@settings(max_examples=300, deadline=None)
def test_written_response_parses_to_the_same_fields(relevance: set[int], analysis: str, answer: str) -> None:
    text = write(sorted(relevance), analysis, answer)
    found = parse(text, "three_part")
    assert found.relevance == frozenset(n if n < 10**18 else 0 for n in relevance)  # too long to be a passage's
    assert found.reasoning == analysis.strip()
    assert found.answer == (answer.strip() or None)
    assert well_formed(text, "three_part")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("[1,5]", {1, 5}), ("[ 5 ,\r\n1,5 ]", {1, 5}), ("[]", set()), ("[ ]", set()), ("[01]", {1}),
        ("[0,-2]", {0, -2}),
        ("[1," + "9" * 5000 + "]", {1, 0}),
        ("", None), ("1,5", None), ("[1,5", None), ("1,5]", None), ("[1 5]", None), ("[1;5]", None), ("[1][5]", None),
        ("[[1,5]]", None), ("[1,]", None), ("[,1]", None), ("[1.0]", None), ("[+1]", None), ("[1e0]", None),
        ("[- 1]", None), ("[one]", None), ('["1"]', None), ("see [1]", None), ("[1] and [5]", None), ("(1,5)", None),
        ("[１,５]", None), ("[٥]", None), ("[²]", None), ("［1,5］", None), ("[1，5]", None), ("[1\u200b]", None),
    ],
)  # fmt: skip
def test_relevance_lists_parse_only_in_the_documented_form(written: str, read: set[int] | None) -> None:
    assert numbers(written) == (None if read is None else frozenset(read))


@pytest.mark.parametrize(
    ("text", "answer", "formed"),
    [
        ("<think>so</think><answer> Ann </answer>", "Ann", True),
        ("<think>so</think> Ann", None, False),
        ("<answer>Ann</answer><think>so</think>", "Ann", False),
        ("<relevance>[1]</relevance><think>so</think><answer>Ann</answer>", "Ann", False),
        ("<think><relevance>[1]</relevance></think><answer>Ann</answer>", "Ann", True),  # text, in this form
    ],
)
def test_think_form_is_parsed(text: str, answer: str | None, formed: bool) -> None:
    assert parse(text, "think").answer == answer
    assert parse(text, "think").relevance is None
    assert well_formed(text, "think") == formed


def test_direct_form_is_parsed() -> None:
    assert parse(" Ann \n", "direct").answer == "Ann"
    assert (parse(" \n", "direct").answer, well_formed(" \n", "direct")) == (None, False)


@pytest.mark.parametrize(
    ("text", "response"),
    [
        ("<think>Bo? No.</think>\n\nAnn", "Ann"),
        ("Bo? No.</think> Ann", "Ann"),  # the chat template has opened the thoughts
        ("<think>Bo? Hm", ""),
        ("Ann", "Ann"),
    ],
)
def test_thoughts_of_a_reasoning_model_are_removed_from_the_response(text: str, response: str) -> None:
    assert without_thoughts(text, "direct") == without_thoughts(text, "three_part") == response
    assert without_thoughts(text, "think") == text
