"""The variants of the method, each run whole at a tiny size."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.records import Trajectory
from platform_sdk.sampling.models import load_tokenizer
from platform_sdk.tracking import manifest
from tests.e2e.runs import RECIPES, TINY_MYGO, content, options, rollouts, run_here
from tests.kubeflow.pods import Pods

pytestmark = pytest.mark.e2e


@pytest.mark.slow
def test_overlapped_iteration_samples_with_the_weights_before_the_last(tmp_path: Path) -> None:
    smaller = {"overlap": True, "iterations": 3, "selection.questions": 6, "selection.attempts": 2}
    run = run_here("world.yaml", tmp_path / "run", TINY_MYGO | smaller)
    iterations = ("iteration-01", "iteration-02", "iteration-03")
    weights = {phase: content(run, phase, "train")["weights"] for phase in ("warmup", *iterations)}
    assert len(set(weights.values())) == 4, "every training changed the policy"
    # Overlap begins at iteration 2: while it trains, iteration 3 can be sampled with what iteration 1 left.
    sampled = [{r.weights for r in rollouts(run, phase)} for phase in iterations]
    assert sampled == [{weights["warmup"]}, {weights["iteration-01"]}, {weights["iteration-01"]}]
    # Training still continues from the newest weights, and the last evaluation is of these.
    parents = [content(run, phase, "train")["parents"]["model"] for phase in iterations]
    assert parents == [weights["warmup"], weights["iteration-01"], weights["iteration-02"]]
    assert {r.weights for r in rollouts(run, "eval-final")} == {weights["iteration-03"]}
    thresholds = [content(run, phase, "figures")["threshold"] for phase in iterations]
    assert thresholds == sorted(thresholds)


@pytest.mark.slow
def test_run_by_pods_with_fewer_iterations_than_compiled_equals_a_local_run_of_them(tmp_path: Path) -> None:
    compiled = load_recipe(RECIPES / "world.yaml", options(TINY_MYGO | {"iterations": 2, "evaluate_iterations": True}))
    [field] = [field.name for field in compiled.form if field.setting == "iterations"]
    pods = Pods(tmp_path, compiled)
    pods.begin(**{field: 1})
    pods.all(read_as(ClusterSpec, RECIPES.parent / "cluster.yaml"))
    alone = run_here("world.yaml", tmp_path / "alone", TINY_MYGO | {"evaluate_iterations": True})
    assert (pods.run_dir / "report.html").exists()
    there, here = (
        {entry.event: (entry.digests, entry.settings, entry.licences) for entry in manifest.read(place)}
        for place in (pods.run_dir, alone)
    )
    begun = there.pop("run started"), here.pop("run started")  # they hold the commit and the environment too
    assert begun[0][0]["recipe"] == begun[1][0]["recipe"]
    assert there == here


@pytest.mark.slow
def test_offline_everything_is_sampled_from_one_policy_with_a_fixed_threshold(tmp_path: Path) -> None:
    offline = {"selection.threshold": "fixed", "selection.initial_threshold": 0.3}
    # From 0.3 a rising threshold would be 0.5 or more, whatever the mean reward.
    run = run_here("world.yaml", tmp_path / "run", TINY_MYGO | offline)
    figures = content(run, "iteration-01", "figures")
    assert figures["threshold"] == 0.3
    selected = rollouts(run, "iteration-01", "selected")
    assert len(selected) == figures["selected"] > 0
    assert all(r.rewards["f1"] >= 0.3 for r in selected)
    trained = content(run, "iteration-01", "train")
    assert {r.weights for r in rollouts(run, "iteration-01")} == {trained["parents"]["model"]}
    assert trained["examples"] == sum(len(r.trajectories) for r in selected)
    assert {r.weights for r in rollouts(run, "eval-final")} == {trained["weights"]}


def test_unsplit_agent_reads_its_own_search_results(tmp_path: Path) -> None:
    run = run_here("world-text.yaml", tmp_path / "run", TINY_MYGO | {"agent.split": False})
    sampled = [r for phase in ("warmup", "iteration-01", "eval-final") for r in rollouts(run, phase)]
    assert {(r.main.role, len(r.others)) for r in sampled} == {("agent", 0)}
    searched = [r for r in sampled if r.main.evidence]
    assert searched
    for rollout in searched:
        told = "\n".join(turn.text for turn in rollout.main.turns if turn.speaker == "environment")
        assert all(item.text in told for item in rollout.main.evidence)


@pytest.mark.slow
def test_chain_plan_asks_sub_questions_one_at_a_time(tmp_path: Path) -> None:
    run = run_here("world.yaml", tmp_path / "run", TINY_MYGO | {"agent.plan": "chain"})
    sampled = [r for phase in ("warmup", "iteration-01", "eval-final") for r in rollouts(run, phase)]
    # This policy would ask more at once: it is told so, and does not get through with it.
    refused = [turn.malformed for r in sampled for turn in r.main.turns if turn.malformed]
    assert "ask at most 1 sub-question at a time" in refused
    # A worker is named by the planner's turn and its place within it.
    assert {worker.id.split(".")[1] for r in sampled for worker in r.others} == {"0"}
    turns = [[int(worker.id.split(".")[0]) for worker in r.others] for r in sampled]
    assert all(a < b for order in turns for a, b in itertools.pairwise(order))
    assert max(map(len, turns)) > 1, "no question was answered step by step"


def instruction(planner: Trajectory) -> tuple[int, ...]:
    """Return the tokens in front of the question, which the shipped base model writes as a word of its own."""
    question = load_tokenizer("hopforge:world-base").convert_tokens_to_ids("Question")
    return planner.token_ids[: planner.token_ids.index(question)]


@pytest.mark.slow
def test_mygo_continues_from_the_evipath_model(tmp_path: Path) -> None:
    tiny = {
        **{name: value for name, value in TINY_MYGO.items() if not name.startswith(("warmup.", "training."))},
        "dataset.world.train_questions": 12,
        "training.epochs": 1,
        # Whatever is sampled is accepted: this shows what is handed on, not what is learned.
        "selection.initial_threshold": 0.0,
        "selection.threshold": "fixed",
    }
    run = run_here("../evipath-mygo/world.yaml", tmp_path / "run", tiny)
    finetuned, trained = (content(run, phase, "train") for phase in ("finetuning", "iteration-01"))
    assert trained["parents"]["model"] == finetuned["weights"] != trained["weights"]
    sampled = rollouts(run, "iteration-01")
    assert (
        {r.weights for r in sampled} == {r.weights for r in rollouts(run, "eval-finetuned")} == {finetuned["weights"]}
    )
    assert {r.weights for r in rollouts(run, "eval-final")} == {trained["weights"]}
    # The planner is told the same in the paths and in the iterations: one agent throughout.
    learned = [rollouts(run, phase, "selected") for phase in ("finetuning", "iteration-01")]
    instructions = [{instruction(r.main) for r in part} for part in learned]
    assert instructions[0] == instructions[1]
    assert len(instructions[0]) == 1
    assert content(run, "iteration-01", "figures")["threshold"] == 0.0
