"""Calls that the program names draw the random numbers of their names; evidence is where its text is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from platform_sdk.gateway.events import CompletionAsked, SearchAsked
from platform_sdk.gateway.messages import Message
from platform_sdk.gateway.protocol import turn_of
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from platform_sdk.records import Evidence
from platform_sdk.sampling.engine import Completion
from platform_sdk.sampling.seeds import seed_of
from tests.gateway.templates import TOOLS, tokenizer


def spoken(session: Session, text: str, *messages: str, turn: str | int | None = None) -> int:
    """Let the policy say a text after alternating messages of user and assistant; return the call's seed."""
    sent = tuple(Message(("user", "assistant")[place % 2], each) for place, each in enumerate(messages))
    session.ask(sent, (), (), turn=turn)
    return answered(session, text)


def answered(session: Session, text: str) -> int:
    """Answer the waiting call with a text; return the call's seed."""
    event = session.inbox.take()
    assert isinstance(event, CompletionAsked)
    encode = tokenizer("qwen2_5")
    ids = (*encode(text, add_special_tokens=False)["input_ids"], encode.eos_token_id)
    session.completed(event, Completion(event.id, ids, (-0.5,) * len(ids), "stop"))
    return event.params.seed


def searched(session: Session, query: str, *texts: str) -> None:
    session.search(query, len(texts))
    event = session.inbox.take()
    assert isinstance(event, SearchAsked)
    session.found(event, tuple(Evidence(kind="passage", id=text, text=text, score=1.0) for text in texts))


def shown(session: Session) -> list[list[list[str]]]:
    """Return the ids of the evidence of the environment's turns, by trajectory."""
    return [
        [[item.id for item in turn.evidence] for turn in each.turns if turn.speaker == "environment"]
        for each in session.trajectories()
    ]


def test_seed_follows_from_the_name_and_else_from_the_prompt(session: Session) -> None:
    named = [spoken(session, "a", "x", turn="0.1"), spoken(session, "a", "y", turn="0.1")]
    assert named == [seed_of(session.seed, "0.1")] * 2
    assert spoken(session, "a", "x", turn=3) == seed_of(session.seed, 3)
    assert len({spoken(session, "a", "x"), spoken(session, "a", "x"), spoken(session, "a", "y")}) == 3


def test_other_threads_are_in_the_order_of_their_names(session: Session) -> None:
    spoken(session, "the longest of all replies in this session", "main")
    spoken(session, "short", "b", turn="0.1")
    spoken(session, "somewhat longer", "c", turn="1.0")
    spoken(session, "a little longer than the others", "a", turn="0.0")
    openings = [each.turns[0].text for each in session.trajectories()]
    assert openings == ["main", "a", "b", "c"]


def test_numbers_in_names_are_ordered_by_value(session: Session) -> None:
    spoken(session, "the longest of all replies in this session", "main")
    for turn in ("10.0", 2, "2.10", "2.9", "b", "0.1"):
        spoken(session, "short", f"of {turn}", turn=turn)
    openings = [each.turns[0].text for each in session.trajectories()]
    assert openings == ["main", "of 0.1", "of 2", "of 2.9", "of 2.10", "of 10.0", "of b"]


def test_trajectories_do_not_depend_on_the_order_of_named_calls(hermes: Gateway) -> None:
    """Equal prompts with replies of equal length: the names distinguish them."""
    for number in range(5):
        turns = [f"{number}a", f"{number}b"]
        texts = dict(zip(turns, ("alpha", "omega"), strict=True))
        found = []
        for order in (turns, turns[::-1]):
            session = hermes.open(seed=1, name="Q#0")
            for turn in order:
                spoken(session, texts[turn], "Answer .", turn=turn)
            found.append([each.turns[-1].text for each in session.trajectories()])
        assert found[0] == found[1]


@pytest.mark.parametrize("queries", [["film A", "film B"], ['"film A"', '"film B"'], ["Zoë", "Amélie"]])
def test_parallel_searches_are_in_the_order_of_their_calls(hermes: Gateway, queries: list[str]) -> None:
    """JSON escapes quotes and other letters in the queries of a reply."""
    call = '<tool_call>\n{"name": "find", "arguments": %s}\n</tool_call>'
    reply = "\n".join(call % json.dumps({"query": query}) for query in queries)
    for order in (queries, queries[::-1]):
        session = hermes.open(seed=1, name="Q#0")
        session.ask((Message("user", "Who ?"),), tuple(TOOLS), ())
        answered(session, reply)
        for query in order:
            searched(session, query, f"text of {query}")
        [each] = session.trajectories()
        assert [item.id for turn in each.turns for item in turn.evidence] == [f"text of {query}" for query in queries]


@pytest.mark.parametrize("turn", [1.5, True, [], {}, "x" * 101, 10**200])
def test_malformed_names_are_refused(turn: Any) -> None:
    with pytest.raises(Refusal, match=r"metadata\.hopforge_turn"):
        turn_of({"metadata": {"hopforge_turn": turn}})


def test_results_belong_to_the_prompt_that_shows_them(session: Session) -> None:
    spoken(session, "search: Who directed it? search: Where?", "Amberfall?")
    searched(session, "Who directed it?", "Ida Roth directed it.", "Velm is a town.")
    searched(session, "Where?", "Velm is a town.", "Chile is a country.")
    searched(session, "Who directed it?", "Ida Roth directed it.", "Velm is a town.")
    spoken(session, "in Velm", "Where? Velm is a town. Chile is a country.", turn="0.1")
    spoken(session, "Ida", "Who directed it? Ida Roth directed it. Velm is a town.", turn="0.0")
    spoken(session, "Ida", "Who directed it? Ida Roth directed it. Velm is a town. Really?", turn="0.2")
    spoken(session, "So Ida Roth it is.", "Amberfall?", "search: Who directed it? search: Where?", "Ida; in Velm.")
    first, second = ["Ida Roth directed it.", "Velm is a town."], ["Velm is a town.", "Chile is a country."]
    assert shown(session) == [[[], []], [first], [second], [first]]


def test_results_in_other_words_belong_after_the_reply_that_led_to_them(session: Session) -> None:
    spoken(session, "search: Who?", "Amberfall?")
    searched(session, "Who?", "Ida Roth directed it.")
    spoken(session, "Ida", "Amberfall?", "search: Who?", "It was Ida.")
    searched(session, "never shown", "Velm is a town.")
    assert shown(session) == [[[], ["Ida Roth directed it."], ["Velm is a town."]]]


def test_given_passages_are_evidence_where_a_prompt_has_them(hermes: Gateway) -> None:
    given = tuple(Evidence(kind="passage", id=text, text=text, score=0.0) for text in ("Ida.", "Velm.", "Chile."))
    session = hermes.open(seed=1, name="Q#0", given=given)
    spoken(session, "yes", "Is it Chile. or Ida. ?")
    assert shown(session) == [[["Ida.", "Chile."]]]
    session.close()
