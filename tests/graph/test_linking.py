"""Entity linking by name, against a brute-force reading of the rule."""

from __future__ import annotations

import time
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from platform_sdk.graph.linking import EntityLinker

TOKENS = st.sampled_from(["a", "A", "ab", "Ab", "AB", "b", "straße", "STRASSE", "o", "O", "2", "a2", "A2", ".", "'"])
NAMES = st.lists(st.lists(st.lists(TOKENS, min_size=1, max_size=3), max_size=3), max_size=6)


def brute_force(names: list[list[list[str]]], text: list[str]) -> list[int]:
    """Read from left to right; at each token take the longest name that begins there, and go on behind it."""

    def folded(tokens: list[str]) -> list[str]:
        return [token.casefold() for token in tokens]

    def has_capital(tokens: list[str]) -> bool:
        return any(letter.isupper() for token in tokens for letter in token)

    found: list[int] = []
    at = 0
    while at < len(text):
        lengths = [len(name) for own in names for name in own if folded(text[at : at + len(name)]) == folded(name)]
        here = text[at : at + max(lengths, default=1)]
        for entity, own in enumerate(names):
            same = [name for name in own if folded(name) == folded(here)]
            if len(here) == 1 and has_capital(text) and not has_capital(here):
                same = [name for name in same if not has_capital(name)]
            if same and entity not in found:
                found.append(entity)
        at += len(here)
    return found


@given(
    NAMES, st.lists(TOKENS, max_size=12), st.sampled_from([str, str.upper, str.lower]), st.sampled_from([" ", " \n"])
)
def test_linking_equals_brute_force_whatever_case_and_spacing(
    names: list[list[list[str]]], text: list[str], cased: Callable[[str], str], space: str
) -> None:
    linker = EntityLinker([[" ".join(name) for name in own] for own in names])
    assert linker.link(cased(space.join(text))) == brute_force(names, [cased(token) for token in text])


def test_linking_takes_no_lower_case_word_for_a_name() -> None:
    linker = EntityLinker([["Was"], ["S"], ["Barrel Roll"], ["iPhone", "Phone"], ["phone", "Phone"], ["U2"], ["Oslo"]])
    assert linker.link("When was Ibsen's barrel roll on the phone with u2?") == [2, 4]
    assert linker.link("Was Oslo's iPhone by U2?") == [0, 6, 3, 5]
    assert linker.link("was oslo's iphone by u2?") == [0, 6, 1, 3, 5]  # nothing here tells names from words


def test_linking_takes_the_longest_name_at_word_borders() -> None:
    linker = EntityLinker(
        [["New York"], ["New York University", "NYU"], ["York"], ["Ann"], ["Ann"], ["C++"], [" ", ""]]
    )
    assert linker.link("Is new york university's dean annoyed?") == [1]
    assert linker.link("Did NYU leave NEW\tYORK for York, and who is Ann?") == [1, 0, 2, 3, 4]
    assert linker.link("New Yorkers write c++ in Newyork") == [5]
    assert linker.link("") == linker.link("\0New\0\0York\0!"[:4]) == []
    assert EntityLinker([]).link("New York") == []


def test_names_in_a_long_text_are_found_in_linear_time() -> None:
    began = time.process_time()
    found = EntityLinker([["New York"], ["Oslo"]]).mentions("in Oslo or New York; " * 20_000)
    # Six tokens each time: in, Oslo, or, New, York, and the semicolon.
    places = [(6 * turn + offset, length) for turn in range(20_000) for offset, length in ((1, 1), (3, 2))]
    assert [(mention.position, len(mention.tokens)) for mention in found] == places
    assert time.process_time() - began < 20  # with quadratic time minutes
