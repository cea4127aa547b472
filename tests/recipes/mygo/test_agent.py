"""Mujica's dialogues: token for token what was sampled, whatever the policy does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.recipes.mygo.agent import Mujica, undemonstrated
from platform_sdk.recipes.mygo.grammar import Form
from platform_sdk.recipes.mygo.measures import searches
from platform_sdk.recipes.mygo.settings import AgentSpec
from platform_sdk.recipes.world_base.tokenizer import build_tokenizer
from platform_sdk.records import Evidence, Question, Rollout
from platform_sdk.sampling.engine import Completion, PromptTooLong, Request
from platform_sdk.sampling.rollout import SearchRequest, run

TOKENIZER = build_tokenizer(1024)
END = TOKENIZER.eos_token_id
QUESTION = Question(
    id="q", text="Who is the mother of the director of Amberfall ?", answers=("Lena Roth",), dataset="world",
    topic_entities=("Amberfall",),
)  # fmt: skip


class Scripted:
    """A sampling engine whose policy is a function from a request to token ids: the one thing that must be fake here,
    since no real policy misbehaves on demand. It finishes requests in random order."""

    weight_version = "scripted"
    max_model_len = 1024

    def __init__(self, policy: Callable[[Request], list[int]], seed: int = 0) -> None:
        self.tokenizer, self.policy, self.rng = TOKENIZER, policy, random.Random(seed)
        self.waiting: list[Request] = []

    def submit(self, request: Request) -> None:
        if len(request.token_ids) >= self.max_model_len:
            raise PromptTooLong(request.id)
        self.waiting.append(request)

    def step(self) -> list[Completion]:
        request = self.waiting.pop(self.rng.randrange(len(self.waiting)))
        room = min(request.params.max_tokens, self.max_model_len - len(request.token_ids))
        ids = self.policy(request)[:room]
        finish: Literal["stop", "length"] = "stop" if ids and ids[-1] == END else "length"
        return [Completion(request.id, tuple(ids), tuple(-0.5 for _ in ids), finish)]

    def release(self, dialogue: str) -> None:
        pass

    def cancel(self, request_id: str) -> None:
        self.waiting = [r for r in self.waiting if r.id != request_id]


def say(text: str) -> list[int]:
    return [*TOKENIZER(text, add_special_tokens=False)["input_ids"], END]


def search(form: Form) -> Callable[[Sequence[SearchRequest], int], list[list[Evidence]]]:
    def find(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        if form == "kg":
            assert all(r.head for r in requests)
            return [
                [Evidence(kind="triple", id="t", title="Ida Roth", text="Amberfall, director, Ida Roth", score=1.0)]
            ] * len(requests)
        return [
            [Evidence(kind="passage", id="p", title="Amberfall", text="Ida Roth directed Amberfall .", score=1.0)]
        ] * len(requests)

    return find


def play(policy: Callable[[Request], list[int]], form: Form = "text", seed: int = 0, **spec: Any) -> Rollout:
    agent = Mujica(
        tokenizer=TOKENIZER, spec=AgentSpec(prompts="compact", **spec), form=form, demonstrate=False, temperature=1.0,
        top_p=1.0, top_k=0, weights="w", corpus="c", seed=0, phase="test",
    )  # fmt: skip
    starts = [partial(agent.rollout, QUESTION, 0)]
    [rollout] = run(starts, Scripted(policy, seed), search(form), live=4)  # type: ignore[arg-type]
    return rollout


def check(rollout: Rollout, spec: AgentSpec) -> None:
    """What holds of every rollout."""
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
    turns = [t for t in rollout.planner.turns if t.speaker == "agent"]
    assert len(turns) <= spec.iteration_limit
    assert (rollout.planner.answer is not None) == (rollout.outcome == "answered")
    if rollout.outcome != "answered":
        assert rollout.rewards["em"] == rollout.rewards["f1"] == 0.0


misbehaviour = st.sampled_from(
    ["random tokens", "no tags", "endless", "unknown candidate", "out of range", "empty", "tags only"]
)


@settings(max_examples=60, deadline=None)
@given(misbehaviour, st.sampled_from(["text", "kg"]), st.booleans(), st.integers(0, 2**31))
def test_no_policy_breaks_the_loop(kind: str, form: Form, split: bool, seed: int) -> None:
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
            good = '<action>Search([0], "Who ?")</action>' if form == "kg" else "<search>Who ?</search>"
            return say(f"<think>a</think>{good}")
        return say(texts[kind])

    spec = AgentSpec(iteration_limit=5, split=split, planner_tokens=100, worker_tokens=80)
    rollout = play(policy, form, seed, iteration_limit=5, split=split, planner_tokens=100, worker_tokens=80)
    check(rollout, spec)
    if kind in ("empty", "no tags", "endless"):
        assert rollout.planner.answer is None


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
    assert [w.id for w in rollout.workers] == ["0.0", "0.1"]  # side by side, in the planner's first turn
    assert [t.speaker for t in rollout.planner.turns] == ["environment", "agent", "environment", "agent"]
    # The planner reads reports, never passages.
    assert "directed Amberfall ." not in rollout.planner.turns[2].text
    assert rollout.planner.turns[2].text == "Obs: " + "\n".join(["The director of Amberfall is Ida Roth ."] * 2)
    # Extending by tokens gives what the chat template renders of the whole dialogue.
    messages = [{"role": "system", "content": "Plan : search or answer ."}]
    for turn in rollout.planner.turns:
        messages.append({"role": "user" if turn.speaker == "environment" else "assistant", "content": turn.text})
    rendered = TOKENIZER.apply_chat_template(messages, tokenize=False)
    assert list(rollout.planner.token_ids) == TOKENIZER(rendered, add_special_tokens=False)["input_ids"]


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
    told = [t.text for t in rollout.planner.turns if t.speaker == "environment"]
    assert told[0].endswith("Candidates : [0] Amberfall")
    assert told[1] == "Obs: The director of Amberfall is Ida Roth .\nCandidates : [1] Ida Roth"
    assert told[2] == "Obs: Nothing relevant was found."
    assert rollout.rewards["f1"] == pytest.approx(0.5)  # one of two words on either side


def test_ablations() -> None:
    alone = play(good_policy, split=False)
    assert alone.workers == ()
    assert alone.planner.role == "agent"
    assert "Ida Roth directed Amberfall ." in alone.planner.turns[2].text  # raw passages
    assert searches("text", alone) == searches("text", play(good_policy)) == 2
    chain = play(good_policy, plan="chain", iteration_limit=2)
    assert chain.planner.turns[1].malformed == "ask at most 1 sub-question at a time"
    assert chain.workers == ()
    assert searches("text", chain) == 0  # what was asked against the rule was not searched


def test_the_warm_up_learns_from_bare_prompts() -> None:
    agents = [
        Mujica(
            tokenizer=TOKENIZER, spec=AgentSpec(prompts="compact"), form="text", demonstrate=shown, temperature=1.0,
            top_p=1.0, top_k=0, weights="w", corpus="c", seed=0, phase="test",
        )
        for shown in (True, False)
    ]  # fmt: skip
    shown, bare = (
        next(run([partial(agent.rollout, QUESTION, 0)], Scripted(good_policy), search("text"), live=1))  # type: ignore[arg-type]
        for agent in agents
    )
    assert len(shown.planner.token_ids) > len(bare.planner.token_ids)
    assert undemonstrated(TOKENIZER, AgentSpec(prompts="compact"), "text", shown) == bare
