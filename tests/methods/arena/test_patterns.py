"""Patterns over a model's text equal their plain forms, whose time is quadratic."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from platform_sdk.agents.sections import marked
from platform_sdk.agents.sections import sections as contents
from platform_sdk.evaluation.report.trace import sections
from platform_sdk.methods.arena import prompts

PLAIN_SECTION = re.compile(r"<([a-z_]+)>(.*?)</\1>", re.DOTALL)
lines = st.lists(
    st.sampled_from(
        ["Final", "answer", ":", "FINAL answer:", " ", "\t", "\n", "\r", "\u2028", "\x0b", "x", "y z", "\u3000"]
    ),
    max_size=14,
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
