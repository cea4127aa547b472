"""Mujica's dialogues: token for token what was sampled, whatever the policy does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.agents.planner_messages import Medium
from platform_sdk.agents.planner_rewards import measures
from platform_sdk.agents.planner_worker import PlannerWorker
from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import SamplingSpec
from platform_sdk.errors import UserError
from platform_sdk.methods.method import RunContext
from platform_sdk.methods.mygo.agent import MujicaLanguage, mujica
from platform_sdk.methods.mygo.settings import AgentSpec
from platform_sdk.records import Evidence, Rollout
from platform_sdk.sampling.engine import Request
from platform_sdk.sampling.rollout import SearchRequest, run
from platform_sdk.sampling.seeds import seed_of
from tests.methods.mygo.scripted import END, QUESTION, TOKENIZER, Scripted, say, search


def agent(medium: Medium = "text", *, demonstrate: bool = False, seed_name: str = "test", **spec: Any) -> PlannerWorker:
    run = RunContext(
        run_dir=Path("run"), environment=f"world-{medium}", agent=AgentSpec(prompts="compact", **spec),
        sampling=SamplingSpec(), retrieval=RetrievalSpec.model_validate({}), searched_digest="c", seed=0,
    )  # fmt: skip
    return mujica(run, Policy(TOKENIZER, "w"), run.decoding, seed_name, search(medium), demonstrate=demonstrate)


def play(policy: Callable[[Request], list[int]], medium: Medium = "text", seed: int = 0, **spec: Any) -> Rollout:
    starts = [partial(agent(medium, **spec).rollout, QUESTION, 0)]
    [rollout] = run(starts, Scripted(policy, seed), live=4)  # type: ignore[arg-type]
    return rollout


def check(rollout: Rollout, spec: AgentSpec) -> None:
    """Check the rules for every rollout."""
    for trajectory in rollout.trajectories:
        spans = [(turn.start, turn.end) for turn in trajectory.turns]
        assert spans[0][0] == 0
        assert spans[-1][1] == len(trajectory.token_ids)
        assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
        for turn in trajectory.turns:
            spoken = turn.speaker == "agent"
            assert all(bit == spoken for bit in trajectory.agent_mask[turn.start : turn.end])
            assert all((p != 0) == spoken for p in trajectory.logprobs[turn.start : turn.end])
        assert all(0 <= i < len(trajectory.evidence) for i in trajectory.selected)
        assert len(trajectory.token_ids) <= 1024 + 512
    turns = [t for t in rollout.main.turns if t.speaker == "agent"]
    assert len(turns) <= spec.iteration_limit
    assert (rollout.main.answer is not None) == (rollout.outcome == "answered")
    if rollout.outcome != "answered":
        assert rollout.rewards["em"] == rollout.rewards["f1"] == 0.0


misbehaviour = st.sampled_from(
    ["random tokens", "no tags", "endless", "unknown candidate", "out of range", "empty", "tags only"]
)


@settings(max_examples=60, deadline=None)
@given(misbehaviour, st.sampled_from(["text", "kg"]), st.booleans(), st.integers(0, 2**31))
def test_no_policy_breaks_the_loop(kind: str, medium: Medium, split: bool, seed: int) -> None:
    rng = random.Random(seed)
    texts = {
        "no tags": "I think it is Lena Roth .",
        "unknown candidate": '<think>a</think><action>Search([9], "Who ?")</action>',
        "out of range": "<think>a</think><select>[7]</select><sentence>a</sentence>",
        "tags only": "</think><search><answer></select><think>",
    }

    def policy(request: Request) -> list[int]:
        if kind == "random tokens":
            return [rng.randrange(len(TOKENIZER)) for _ in range(rng.randrange(1, 90))]
        if kind == "endless":
            return [rng.randrange(6, len(TOKENIZER))] * 5000
        if kind == "empty":
            return [END]
        # Half of the time the planner is let through, so that workers meet the policy too.
        if "Plan" in TOKENIZER.decode(request.token_ids[:4]) and rng.random() < 0.5:
            good = '<action>Search([0], "Who ?")</action>' if medium == "kg" else "<search>Who ?</search>"
            return say(f"<think>a</think>{good}")
        return say(texts[kind])

    spec = AgentSpec(iteration_limit=5, split=split, planner_tokens=100, worker_tokens=80)
    rollout = play(policy, medium, seed, iteration_limit=5, split=split, planner_tokens=100, worker_tokens=80)
    check(rollout, spec)
    if kind in ("empty", "no tags", "endless"):
        assert rollout.main.answer is None


def good_policy(request: Request) -> list[int]:
    text = TOKENIZER.decode(request.token_ids)
    if "Read :" in text:
        return say("<think>t</think><select>[0]</select><sentence>The director of Amberfall is Ida Roth .</sentence>")
    if "Obs" in text.rsplit("<|user|>", 1)[-1]:
        return say("<think>t</think><answer>Lena Roth</answer>")
    return say(
        "<think>t</think><search>Who directed Amberfall ?</search><search>Who is the mother of Ida Roth ?</search>"
    )


def test_a_dialogue_by_hand() -> None:
    rollout = play(good_policy)
    check(rollout, AgentSpec())
    assert rollout.outcome == "answered"
    assert rollout.rewards == {"em": 1.0, "f1": 1.0, "well_formed": 1.0}
    assert [w.id for w in rollout.others] == ["0.0", "0.1"]  # side by side, in the planner's first turn
    assert [t.speaker for t in rollout.main.turns] == ["environment", "agent", "environment", "agent"]
    # The planner reads reports, never passages.
    assert "directed Amberfall ." not in rollout.main.turns[2].text
    assert rollout.main.turns[2].text == "Obs: " + "\n".join(["The director of Amberfall is Ida Roth ."] * 2)
    # Extending by tokens gives what the chat template renders of the whole dialogue.
    messages = [{"role": "system", "content": "Plan : search or answer ."}]
    for turn in rollout.main.turns:
        messages.append({"role": "user" if turn.speaker == "environment" else "assistant", "content": turn.text})
    rendered = TOKENIZER.apply_chat_template(messages, tokenize=False)
    assert list(rollout.main.token_ids) == TOKENIZER(rendered, add_special_tokens=False)["input_ids"]


def test_new_entities_become_candidates() -> None:
    turns = iter(
        [
            '<think>t</think><action>Search([0], "Who directed Amberfall ?")</action>',
            "<think>t</think><select>[0]</select><sentence>The director of Amberfall is Ida Roth .</sentence>",
            '<think>t</think><action>Search([1], "Who is the mother of Ida Roth ?")</action>',
            "<think>t</think><sentence>Nothing relevant was found .</sentence>",
            "<think>t</think><answer>Ida Roth</answer>",
        ]
    )
    rollout = play(lambda _: say(next(turns)), "kg")
    told = [t.text for t in rollout.main.turns if t.speaker == "environment"]
    assert told[0].endswith("Candidates : [0] Amberfall")
    assert told[1] == "Obs: The director of Amberfall is Ida Roth .\nCandidates : [1] Ida Roth"
    assert told[2] == "Obs: Nothing relevant was found."
    assert rollout.rewards["f1"] == pytest.approx(0.5)  # one of two words on either side


def searches(rollout: Rollout) -> float:
    return measures("text", rollout)["searches"]


def test_ablated_agents_search_themselves_or_step_by_step() -> None:
    alone = play(good_policy, split=False)
    assert alone.others == ()
    assert alone.main.role == "agent"
    assert "Ida Roth directed Amberfall ." in alone.main.turns[2].text  # raw passages
    assert searches(alone) == searches(play(good_policy)) == 2
    chain = play(good_policy, plan="chain", iteration_limit=2)
    assert chain.main.turns[1].malformed == "ask at most 1 sub-question at a time"
    assert chain.others == ()
    assert searches(chain) == 0  # what was asked against the rule was not searched


def test_the_warm_up_learns_from_bare_prompts() -> None:
    shown, bare = (
        next(run([partial(one.rollout, QUESTION, 0)], Scripted(good_policy), live=1))  # type: ignore[arg-type]
        for one in (agent(demonstrate=True), agent())
    )
    assert len(shown.main.token_ids) > len(bare.main.token_ids)
    language = MujicaLanguage(AgentSpec(prompts="compact"), "text", demonstrate=True)
    assert language.undemonstrated(TOKENIZER, shown) == bare


def test_every_turn_is_drawn_from_the_runs_seed_the_phase_the_attempt_and_its_place() -> None:
    """Equal seeds repeat a run, and no two samples of a run have all parts of the seed in common."""

    def drawn(seed: int = 0, phase: str = "p", attempt: int = 0) -> tuple[int, list[int]]:
        asked: list[Request] = []

        def policy(request: Request) -> list[int]:
            asked.append(request)
            return good_policy(request)

        drawing = replace(agent(seed_name=phase), decoding=Decoding(0.7, 0.9, 5), seed=seed)
        [rollout] = run([partial(drawing.rollout, QUESTION, attempt)], Scripted(policy), live=1)  # type: ignore[arg-type]
        assert {(r.params.temperature, r.params.top_p, r.params.top_k) for r in asked} == {(0.7, 0.9, 5)}
        return rollout.seed, [r.params.seed for r in sorted(asked, key=lambda r: r.dialogue)]

    seed, seeds = drawn()
    assert seed == seed_of(0, "p", "q", 0)
    assert sorted(seeds) == sorted(seed_of(seed, place) for place in (0, "0.0", "0.1", 1))
    others = [drawn(seed=1), drawn(phase="o"), drawn(attempt=1)]
    assert len({one for _, drawn_seeds in [(seed, seeds), *others] for one in drawn_seeds}) == 4 * 4


def test_question_about_a_graph_without_an_entity_to_start_with_is_an_error() -> None:
    asked = QUESTION.model_copy(update={"topic_entities": ()})
    with pytest.raises(UserError, match=f"question {asked.id} has no topic_entities, with which a search"):
        next(agent("kg").rollout(asked, 0))
    next(agent("text").rollout(asked, 0))


def test_entities_of_one_name_are_visited_by_their_ids() -> None:
    """Two films are called Amberfall: a search from either finds a director of its own, who are called alike too."""
    asked = QUESTION.model_copy(update={"topic_entities": ("Amberfall", "Amberfall"), "topic_ids": ("Q1", "Q2")})
    heads: list[tuple[str, str]] = []
    said: list[str] = []

    def find(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        heads.extend((request.scope["head"], request.scope["head_name"]) for request in requests)
        return [
            [
                Evidence(
                    kind="triple", id=request.scope["head"], title="Ida Roth", text="Amberfall, director, Ida Roth",
                    score=1.0, entities=(request.scope["head"], f"{request.scope['head']}9"),
                    entity_names=("Amberfall", "Ida Roth"),
                )
            ]
            for request in requests
        ]  # fmt: skip

    def policy(request: Request) -> list[int]:
        if request.role == "worker":
            return say("<think> it is . </think> <select> [0] </select> <sentence> Ida Roth . </sentence>")
        said.append(request.role)
        turns = {
            1: '<think> . </think> <action> Search([0], "Who ?") Search([1], "Who ?") </action>',
            2: '<think> . </think> <action> Search([2], "Who ?") Search([3], "Who ?") </action>',
        }
        return say(turns.get(len(said), "<think> . </think> <answer> Ida Roth </answer>"))

    [rollout] = run([partial(replace(agent("kg"), search=find).rollout, asked, 0)], Scripted(policy), live=4)  # type: ignore[arg-type]
    assert rollout.main.answer == "Ida Roth"
    assert sorted(heads) == [("Q1", "Amberfall"), ("Q19", "Ida Roth"), ("Q2", "Amberfall"), ("Q29", "Ida Roth")]
