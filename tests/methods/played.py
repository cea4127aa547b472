"""Rollouts of every method and strategy, played by the real agents with a policy that says what is written here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from platform_sdk.agents.planner_messages import Medium
from platform_sdk.agents.speaker import Policy
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import SamplingSpec
from platform_sdk.methods.arena.agent import generator
from platform_sdk.methods.arena.settings import AgentSpec as ArenaSpec
from platform_sdk.methods.method import RunContext
from platform_sdk.methods.mygo.agent import mujica
from platform_sdk.methods.mygo.settings import AgentSpec as MygoSpec
from platform_sdk.records import Evidence, Rollout
from platform_sdk.sampling.engine import Request
from platform_sdk.sampling.rollout import SearchRequest, run
from tests.methods.arena import responses
from tests.methods.arena.talking import Script, character_tokenizer
from tests.methods.mygo import scripted


def _search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    """Two pieces of evidence for each request; the second one is the same whatever is asked."""
    found = []
    for request in requests:
        fact = "head" in request.scope
        kind: Any = "triple" if fact else "passage"
        text = f"Amberfall, {len(request.query)}, Ida Roth" if fact else f"Ida Roth directed : {request.query}"
        also = "Amberfall, is, film" if fact else "A film ."
        found.append(
            [
                Evidence(kind=kind, id=f"e{len(request.query)}", title="Ida Roth", text=text, score=1.0),
                Evidence(kind=kind, id="also", title="film", text=also, score=0.5),
            ]
        )
    return found


def _policy(medium: Medium, request: Request) -> list[int]:
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
    if medium == "kg":
        searches = "\n".join(f'Search([0], "{one}")' for one in asked)
        return scripted.say(f"<think>t</think><action>{searches}</action>")
    return scripted.say("<think>t</think>" + "".join(f"<search>{one}</search>" for one in asked))


def _run(environment: str, agent: Any, temperature: float, seed: int) -> RunContext[Any]:
    return RunContext(
        run_dir=Path("run"), environment=environment, agent=agent, sampling=SamplingSpec(temperature=temperature),
        retrieval=RetrievalSpec.model_validate({}), searched_digest="c", seed=seed,
    )  # fmt: skip


def _mygo(medium: Medium, split: bool) -> Rollout:
    run_context = _run(f"world-{medium}", MygoSpec(prompts="compact", split=split), 1.0, 0)
    agent = mujica(run_context, Policy(scripted.TOKENIZER, "w"), run_context.decoding, "test", _search)
    engine = scripted.Scripted(partial(_policy, medium))
    [rollout] = run([partial(agent.rollout, scripted.QUESTION, 0)], engine, live=4)  # type: ignore[arg-type]
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
    run_context = _run("distractor", ArenaSpec.model_validate({"max_tokens": 64, **spec}), 0.9, 1)
    agent = generator(run_context, Policy(tokenizer, "w"), "p")
    played = Script(tokenizer, lambda place, prompt: _SAID[place]).run(agent.rollout(responses.QUESTION, 0))
    assert isinstance(played, Rollout)
    return played


def played() -> dict[str, Rollout]:
    """Return one rollout of each method and strategy, by its name."""
    mygo: list[tuple[Medium, bool]] = [("kg", True), ("kg", False), ("text", True), ("text", False)]
    rollouts = {f"mygo {medium} {'split' if split else 'undivided'}": _mygo(medium, split) for medium, split in mygo}
    rollouts |= {f"arena {form}": _arena(form=form) for form in ("three_part", "think", "direct")}
    return rollouts | {f"arena {name}": _arena(strategy=name, form="direct") for name in ("sure", "self_ask")}
