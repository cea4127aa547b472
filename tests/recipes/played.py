"""Rollouts of every method and strategy, played by the real agents with a policy that says what is written here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from platform_sdk.recipes.arena.speaker import Distribution

from platform_sdk.recipes.arena.agent import Generator
from platform_sdk.recipes.arena.settings import AgentSpec as ArenaSpec
from platform_sdk.recipes.mygo.agent import Mujica
from platform_sdk.recipes.mygo.grammar import Form
from platform_sdk.recipes.mygo.settings import AgentSpec as MygoSpec
from platform_sdk.records import Evidence, Rollout
from platform_sdk.sampling.engine import Request
from platform_sdk.sampling.rollout import SearchRequest, run
from tests.recipes.arena import responses
from tests.recipes.arena.talking import Script, character_tokenizer
from tests.recipes.mygo import scripted


def _search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    """Two pieces of evidence for each request; the second one is the same whatever is asked."""
    found = []
    for request in requests:
        kind: Any = "triple" if request.head else "passage"
        text = f"Amberfall, {len(request.query)}, Ida Roth" if request.head else f"Ida Roth directed : {request.query}"
        also = "Amberfall, is, film" if request.head else "A film ."
        found.append(
            [
                Evidence(kind=kind, id=f"e{len(request.query)}", title="Ida Roth", text=text, score=1.0),
                Evidence(kind=kind, id="also", title="film", text=also, score=0.5),
            ]
        )
    return found


def _policy(form: Form, request: Request) -> list[int]:
    """Two questions, a malformed turn, one question more, the answer; one worker cannot be read."""
    text = scripted.TOKENIZER.decode(request.token_ids)
    if "Read :" in text:
        if "mother" in text:
            return scripted.say("I cannot say .")
        return scripted.say("<think>t</think><select>[0]</select><sentence>Ida Roth directed Amberfall .</sentence>")
    asked = ["Who directed Amberfall ?", "Who is the mother of Ida Roth ?"]
    match text.count("<|assistant|>"):
        case 1:
            pass
        case 2:
            return scripted.say("no tags at all")
        case 3:
            asked = ["Who wrote Amberfall ?"]
        case _:
            return scripted.say("<think>t</think><answer>Lena Roth</answer>")
    if form == "kg":
        searches = "\n".join(f'Search([0], "{one}")' for one in asked)
        return scripted.say(f"<think>t</think><action>{searches}</action>")
    return scripted.say("<think>t</think>" + "".join(f"<search>{one}</search>" for one in asked))


def _mygo(form: Form, split: bool) -> Rollout:
    agent = Mujica(
        tokenizer=scripted.TOKENIZER, spec=MygoSpec(prompts="compact", split=split), form=form, demonstrate=False,
        temperature=1.0, top_p=1.0, top_k=0, weights="w", corpus="c", seed=0, phase="test",
    )  # fmt: skip
    engine = scripted.Scripted(partial(_policy, form))
    [rollout] = run([partial(agent.rollout, scripted.QUESTION, 0)], engine, _search, live=4)  # type: ignore[arg-type]
    return rollout


_SAID = {
    "response": "<relevance>[2,5]</relevance><analysis>[2] [5]</analysis><answer>Ann Lee</answer>",
    "candidates": "1. Bo Li\n2. Ann Lee",
    "summary-0": "Bo Li was near.",
    "summary-1": "Ann Lee directed it.",
    "valid-0": "no",
    "valid-1": "yes",
    "better-0-1": "2",
    "better-1-0": "1",
    "turn-0": "Follow-up question : Which film?",
    "follow-up-0": "The film.",
    "turn-1": "Follow-up question : Who directed it?",
    "follow-up-1": "Ann Lee",
    "turn-2": "Final answer : Ann Lee",
}


def _arena(**spec: Any) -> Rollout:
    tokenizer = character_tokenizer()
    agent = Generator(
        tokenizer=tokenizer, spec=ArenaSpec.model_validate(spec), environment="distractor",
        distribution=Distribution(temperature=0.9, top_p=1.0, top_k=0, max_tokens=64),
        weights="w", corpus="c", seed=1, phase="p",
    )  # fmt: skip
    played = Script(tokenizer, lambda place, prompt: _SAID[place]).run(agent.rollout(responses.QUESTION, 0))
    assert isinstance(played, Rollout)
    return played


def played() -> dict[str, Rollout]:
    """Return one rollout of each method and strategy, by its name."""
    mygo: list[tuple[Form, bool]] = [("kg", True), ("kg", False), ("text", True), ("text", False)]
    rollouts = {f"mygo {form} {'split' if split else 'undivided'}": _mygo(form, split) for form, split in mygo}
    rollouts |= {f"arena {form}": _arena(form=form) for form in ("three_part", "think", "direct")}
    return rollouts | {f"arena {name}": _arena(strategy=name, form="direct") for name in ("sure", "self_ask")}
