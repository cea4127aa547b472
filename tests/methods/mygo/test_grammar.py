"""The message grammar: what is accepted, what is malformed, and that no text breaks the parsers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from platform_sdk.agents.sections import sections
from platform_sdk.methods.mygo.grammar import (
    _TAG,
    NOTHING_FOUND,
    Answer,
    Ask,
    Malformed,
    Medium,
    Reading,
    SubQuestion,
    parse_planner,
    parse_worker,
)
from platform_sdk.methods.mygo.prompts import role_prompt

TAGS = [f"<{slash}{t}>" for t in ("think", "search", "answer", "action", "select", "sentence") for slash in ("", "/")]
pieces = st.one_of(
    st.sampled_from([*TAGS, "[0]", "[-1]", "[7]", 'Search([0], "who?")', "Search([", '"', "\n", " ", NOTHING_FOUND]),
    st.text(max_size=12),
)
soup = st.lists(pieces, max_size=14).map("".join)
plain = st.text(st.characters(exclude_characters='<>"', exclude_categories=("Cs",)), min_size=1, max_size=40).filter(
    lambda text: text.strip() != ""
)
space = st.sampled_from(["", " ", "\n", " \n "])


@given(soup, st.sampled_from(["text", "kg"]), st.integers(0, 4))
def test_any_text_is_an_action_or_malformed(text: str, medium: str, known: int) -> None:
    planned = parse_planner(text, medium, candidates=known, max_questions=3)  # type: ignore[arg-type]
    read = parse_worker(text, medium, materials=known)  # type: ignore[arg-type]
    if isinstance(planned, Ask):
        assert 1 <= len(planned.sub_questions) <= 3
        assert all((sub.candidate is None) == (medium == "text") for sub in planned.sub_questions)
        assert all(sub.candidate is None or sub.candidate < known for sub in planned.sub_questions)
    if isinstance(planned, Malformed):
        assert planned.reason
    if isinstance(read, Reading):
        assert all(0 <= index < known for index in read.selected)
        assert len(set(read.selected)) == len(read.selected)
    # A turn is an action for the planner or for a worker, never for both.
    assert isinstance(planned, Malformed) or isinstance(read, Malformed)


@given(plain, st.lists(plain, min_size=1, max_size=4), space)
def test_well_formed_searches_come_back_whole(thought: str, queries: list[str], gap: str) -> None:
    text = f"{gap}<think>{thought}</think>{gap}" + gap.join(f"<search>{q}</search>" for q in queries) + gap
    assert parse_planner(text, "text", candidates=0, max_questions=4) == Ask(
        tuple(SubQuestion(q.strip()) for q in queries)
    )


@given(plain, st.lists(st.tuples(st.integers(0, 5), plain), min_size=1, max_size=4), space)
def test_well_formed_graph_searches_come_back_whole(thought: str, asked: list[tuple[int, str]], gap: str) -> None:
    searches = gap.join(f'Search ({gap}[ {i} ] ,{gap}"{q}" )' for i, q in asked)
    action = parse_planner(f"<think>{thought}</think><action>{searches}</action>", "kg", candidates=6, max_questions=4)
    assert action == Ask(tuple(SubQuestion(q.strip(), i) for i, q in asked))


@given(plain, plain, space)
def test_well_formed_answers_come_back_whole(thought: str, answer: str, gap: str) -> None:
    text = f"<think>{thought}</think>{gap}<answer>{gap}{answer}{gap}</answer>"
    assert parse_planner(text, "text", candidates=0, max_questions=1) == Answer(answer.strip())


@given(plain, st.lists(st.integers(0, 4), min_size=1, max_size=5), plain, space)
def test_well_formed_readings_come_back_whole(thought: str, chosen: list[int], sentence: str, gap: str) -> None:
    indices = gap.join(f"[{i}]" for i in chosen)
    text = f"<think>{thought}</think>{gap}<select>{indices}</select>{gap}<sentence>{sentence}</sentence>"
    assert parse_worker(text, "text", materials=5) == Reading(tuple(dict.fromkeys(chosen)), sentence.strip())


@pytest.mark.parametrize(
    ("text", "medium"),
    [
        ("", "text"),
        ("just words", "text"),
        ("<answer>x</answer>", "text"),  # no thought
        ("<think>a</think>", "text"),  # no action
        ("<think>a</think><answer>x", "text"),  # unterminated
        ("<think>a</think><answer></answer>", "text"),
        ("<think>a</think><answer>x</answer><answer>y</answer>", "text"),
        ("<think>a</think><answer>x</answer> and more", "text"),
        ("<think>a</think><search>x</search><answer>y</answer>", "text"),
        ("<think>a<search>x</search></think><answer>y</answer>", "text"),  # a tag inside the thought
        ("<think>a</think><search>1</search><search>2</search><search>3</search>", "text"),  # more than two
        ('<think>a</think><action>Search([0], "x")</action>', "text"),  # the other medium's action
        ("<think>a</think><search>x</search>", "kg"),
        ('<think>a</think><action>Search([2], "x")</action>', "kg"),  # unknown candidate
        ('<think>a</think><action>Search([-1], "x")</action>', "kg"),
        ('<think>a</think><action>Search([0], "x") or so</action>', "kg"),
        ('<think>a</think><action>Search([0], "")</action>', "kg"),
        ("<think>a</think><action></action>", "kg"),
    ],
)
def test_planner_text_outside_the_grammar_is_malformed(text: str, medium: str) -> None:
    assert isinstance(parse_planner(text, medium, candidates=2, max_questions=2), Malformed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "medium"),
    [
        ("<think>a</think><select>[0]</select>", "text"),
        ("<think>a</think><sentence>s</sentence>", "text"),
        ("<think>a</think><select></select><sentence>s</sentence>", "text"),
        ("<think>a</think><select>[2]</select><sentence>s</sentence>", "text"),  # there are two passages
        ("<think>a</think><select>[-1][0]</select><sentence>s</sentence>", "text"),  # none and one
        ("<think>a</think><select>first</select><sentence>s</sentence>", "text"),
        ("<think>a</think><select>[0]</select><sentence>s", "text"),
        ("<think>a</think><select>[-1]</select><sentence>s</sentence>", "kg"),
        ("<think>a</think><sentence>I found nothing.</sentence>", "kg"),  # not the fixed sentence
    ],
)
def test_worker_text_outside_the_grammar_is_malformed(text: str, medium: str) -> None:
    assert isinstance(parse_worker(text, medium, materials=2), Malformed)  # type: ignore[arg-type]


def test_worker_reading_may_select_nothing() -> None:
    own = "<think>a</think><select>[-1]</select><sentence>Paris, I think.</sentence>"
    assert parse_worker(own, "text", materials=2) == Reading((), "Paris, I think.")
    for spacing in (NOTHING_FOUND, " nothing relevant was found . "):
        text = f"<think>a</think><sentence>{spacing}</sentence>"
        assert parse_worker(text, "kg", materials=0) == Reading((), NOTHING_FOUND)


@pytest.mark.parametrize("style", ["standard", "compact"])
@pytest.mark.parametrize("medium", ["text", "kg"])
@pytest.mark.parametrize("role", ["planner", "worker", "agent"])
def test_the_worked_examples_obey_the_grammar(style: str, medium: str, role: str) -> None:
    prompt = role_prompt(style, role, medium, max_questions=2)  # type: ignore[arg-type]
    for turn in prompt.example[1::2]:
        parsed = (
            parse_worker(turn, medium, materials=2)  # type: ignore[arg-type]
            if role == "worker"
            else parse_planner(turn, medium, candidates=2, max_questions=2)  # type: ignore[arg-type]
        )
        assert not isinstance(parsed, Malformed), turn
    # Shown once, in the one place or the other, and not at all without a demonstration.
    assert ("Example" in prompt.system(demonstrate=True)) == (style == "compact")
    assert (prompt.turns(demonstrate=True) == prompt.example) == (style == "standard")
    assert "Example" not in prompt.system(demonstrate=False)
    assert prompt.turns(demonstrate=False) == ()


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("medium", ["text", "kg"])
def test_the_examples_ask_as_many_sub_questions_at_once_as_are_allowed(medium: Medium, most: int) -> None:
    example = role_prompt("standard", "planner", medium, max_questions=most).example
    turns = [parse_planner(text, medium, candidates=2, max_questions=2) for text in example[1::2]]
    assert max(len(turn.sub_questions) for turn in turns if isinstance(turn, Ask)) == most


def plainsections(text: str, tag: str, _TAG) -> list[str] | None:
    """The sections as a reader would take them off the text, one after the other."""
    contents = []
    opening, closing = f"<{tag}>", f"</{tag}>"
    while text:
        content, end, rest = text.removeprefix(opening).partition(closing)
        if not text.startswith(opening) or not end or any(each in content for each in TAGS):
            return None
        contents.append(content.strip())
        text = rest.strip()
    return contents


@given(soup, st.sampled_from(["search", "answer", "sentence"]))
@example("", "search")
@example("<search></search>\x1c\u3000<search> a\u200b</search>\x85", "search")
@example("<search><search>a</search>", "search")
@example("</search>", "search")
def test_sections_are_those_of_a_plain_reading(text: str, tag: str) -> None:
    assert sections(text, tag, _TAG) == plainsections(text, tag, _TAG)
    whole = f"<{tag}>{text}</{tag}> " * 3
    assert sections(whole, tag, _TAG) == plainsections(whole, tag, _TAG)


class CountingText(str):
    """A text that counts the characters that are copied or passed over."""

    __slots__ = ()
    handled = 0

    def _count(self, text: str) -> CountingText:
        CountingText.handled += len(text)
        return CountingText(text)

    def __getitem__(self, key: Any) -> CountingText:
        return self._count(super().__getitem__(key))

    def removeprefix(self, prefix: str, /) -> CountingText:
        return self._count(super().removeprefix(prefix))

    def strip(self, characters: str | None = None, /) -> CountingText:
        return self._count(super().strip(characters))

    def partition(self, separator: str, /) -> Any:
        return tuple(self._count(part) for part in super().partition(separator))

    def find(self, text: str, start: int = 0, end: int | None = None, /) -> int:  # type: ignore[override]
        found = super().find(text, start, len(self) if end is None else end)
        CountingText.handled += (len(self) if found < 0 else found) - start
        return found


@pytest.mark.parametrize("piece", ["<search>x</search>", "<search> ", "<search></search>  \n"])
def test_twice_as_much_text_is_twice_the_work(piece: str) -> None:
    def work(count: int) -> int:
        CountingText.handled = 0
        sections(CountingText(piece * count), "search", _TAG)
        return CountingText.handled

    assert work(2000) <= 2.1 * work(1000)
