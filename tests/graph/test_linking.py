"""Entity linking by name, against a brute-force reading of the rule."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from platform_sdk.graph.linking import EntityLinker

TOKENS = st.sampled_from(["a", "ab", "b", "straße", "o", "2", ".", "'"])
NAMES = st.lists(st.lists(st.lists(TOKENS, min_size=1, max_size=3), max_size=3), max_size=6)


def brute_force(names: list[list[list[str]]], text: list[str]) -> list[int]:
    """Read from left to right; at each token take the longest name that begins there, and go on behind it."""
    found: list[int] = []
    at = 0
    while at < len(text):
        lengths = [len(name) for own in names for name in own if text[at : at + len(name)] == name]
        if lengths:
            name = text[at : at + max(lengths)]
            found += [entity for entity, own in enumerate(names) if name in own and entity not in found]
        at += max(lengths, default=1)
    return found


@given(NAMES, st.lists(TOKENS, max_size=12), st.sampled_from([str, str.upper]), st.sampled_from([" ", " \n"]))
def test_linking_equals_brute_force_whatever_case_and_spacing(
    names: list[list[list[str]]], text: list[str], cased: Callable[[str], str], space: str
) -> None:
    linker = EntityLinker([[" ".join(name) for name in own] for own in names])
    assert linker.link(cased(space.join(text))) == brute_force(names, text)


def test_linking_takes_the_longest_name_at_word_borders() -> None:
    linker = EntityLinker(
        [["New York"], ["New York University", "NYU"], ["York"], ["Ann"], ["Ann"], ["C++"], [" ", ""]]
    )
    assert linker.link("Is new york university's dean annoyed?") == [1]
    assert linker.link("Did NYU leave NEW\tYORK for York, and who is Ann?") == [1, 0, 2, 3, 4]
    assert linker.link("New Yorkers write c++ in Newyork") == [5]
    assert linker.link("") == linker.link("\0New\0\0York\0!"[:4]) == []
    assert EntityLinker([]).link("New York") == []
