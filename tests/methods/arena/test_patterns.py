"""Patterns over a model's text equal their plain forms, whose time is quadratic."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from platform_sdk.agents.planner_worker import Answer, Malformed
from platform_sdk.agents.sections import marked
from platform_sdk.agents.sections import sections as contents
from platform_sdk.evaluation.report.trace import sections
from platform_sdk.methods.arena import prompts
from platform_sdk.methods.evipath.planning import without_plan
from platform_sdk.methods.react.grammar import parse_search_r1
from platform_sdk.records import ToolCall
from platform_sdk.tools.search import SearchTool

PLAIN_SECTION = re.compile(r"<([a-z_]+)>(.*?)</\1>", re.DOTALL)
lines = st.lists(
    st.sampled_from(
        ["Final", "answer", ":", "FINAL answer:", " ", "\t", "\n", "\r", "\u2028", "\x0b", "x", "y z", "\u3000"]
    ),
    max_size=14,
).map("".join)
plans = st.lists(st.sampled_from(["1", "2", ".", ")", " ", "\n", "\t", "\r", "\u2028", "x", "y z"]), max_size=14).map(
    "".join
)
actions = st.lists(
    st.sampled_from(["<search>", "</search>", "<answer>", "</answer>", "x", " ", "\n"]), max_size=10
).map("".join)
tags = st.lists(
    st.sampled_from(["<a>", "</a>", "<b_c>", "</b_c>", "<search>", "</search>", "<", "x", " ", "\n"]), max_size=14
).map("".join)


@given(lines)
@example("Final answer : x  \n\n y")
@example("\n \u2028 Final\nanswer\n: x")
@example("Final answer :\n x")
def test_marked_lines_are_found_as_a_plain_pattern_finds_them(text: str) -> None:
    words = r"\s*".join(re.escape(word) for word in prompts.FINAL.split())
    found = re.search(rf"^\s*{words}[ \t]*(\S.*?)\s*$", text, re.IGNORECASE | re.MULTILINE)
    assert marked(text, prompts.FINAL) == (found[1] if found else None)


@given(plans)
@example("1. a\n\n 2) b c \nFirst.")
@example("1.\n2. b")
def test_plan_is_found_as_a_plain_pattern_finds_it(text: str) -> None:
    found = list(re.finditer(r"^\s*\d+[.)]\s*(\S.*?)\s*$", text, re.MULTILINE))
    rest = text[found[-1].end() :].strip() if found else text
    assert without_plan(text) == (tuple(line[1] for line in found), rest)


@given(actions)
@example("<search><answer>a</answer></search>")
def test_action_of_search_r1_is_found_as_a_plain_pattern_finds_it(text: str) -> None:
    found = re.search(r"<(search|answer)>(.*?)</\1>", text, re.DOTALL)
    action = parse_search_r1(text, {"search": SearchTool()})
    content = found[2].strip() if found else ""
    if isinstance(action, Malformed):
        assert not content
    else:
        assert found is not None
        expected = Answer(content) if found[1] == "answer" else ToolCall(tool="search", arguments={"query": content})
        assert action == expected


@pytest.mark.parametrize(
    "parse", [lambda: parse_search_r1("<search>" * 20_000, {}), lambda: without_plan("\n" * 100_000 + "x")]
)
def test_text_of_many_lines_or_tags_takes_no_quadratic_time(parse: Callable[[], object]) -> None:
    began = time.monotonic()
    parse()
    assert time.monotonic() - began < 5


@given(tags)
@example("<a><a>x</a></a>")
@example("<a><b_c></a></b_c><a>y</a>")
def test_sections_of_a_page_are_found_as_a_plain_pattern_finds_them(text: str) -> None:
    expected, end = [], 0
    for match in PLAIN_SECTION.finditer(text):
        expected += [["", text[end : match.start()]], [match[1], match[2]]]
        end = match.end()
    expected.append(["", text[end:]])
    assert sections(text) == [[tag, said.strip()] for tag, said in expected if said.strip() or tag]


@given(st.lists(st.text("ab<> \n", max_size=9), max_size=5), st.sampled_from(["", " ", "\n\n", "x"]))
@example(["a", "</search>"], " ")
def test_searches_of_a_turn_are_found_as_a_plain_pattern_finds_them(queries: list[str], between: str) -> None:
    text = between.join(f"<search>{query}</search>" for query in queries)
    plain = re.fullmatch(r"(?:<search>(?:(?!</?search>).)*</search>\s*)*", text, re.DOTALL)
    found = [query.strip() for query in re.findall(r"<search>(.*?)</search>", text, re.DOTALL)]
    assert contents(text, "search", re.compile("</?search>")) == (found if plain else None)
