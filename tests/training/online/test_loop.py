"""Whole online runs: what they learn, what they leave, and that ways of running them which must agree do."""

from __future__ import annotations

import json
import logging
import math
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from platform_sdk.config.credit import GdpoCreditSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout, Trajectory, Turn
from platform_sdk.sampling.engine import SamplingEngine, WeightsMismatch
from platform_sdk.sampling.models import load_model, load_tokenizer, weights_digest
from platform_sdk.sampling.special_tokens import special_tokens
from platform_sdk.tracking.credit import RolloutCredit, credit_file
from platform_sdk.tracking.updates import Update, read_updates
from platform_sdk.training.advantages import group_advantages
from platform_sdk.training.credit import Credit, GroupAdvantage, TrajectoryKey, turn_credits
from platform_sdk.training.online.loop import OnlineResult, train_online
from platform_sdk.training.online.preparation import PreparedGroup
from platform_sdk.training.online.questions import taken_up
from platform_sdk.training.trainer import PolicyTrainer
from tests.e2e.runs import environment
from tests.sampling.tiny_models import save_model
from tests.training.online import lucky
from tests.training.online.served import serving
from tests.training.online.stepwise import StepProgress, history

Run = tuple[OnlineResult, list[Update]]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("lucky"))


def run(
    model: Path, base: Path, engine: EngineSpec | None = None, on_update: Any = None, credit: Credit | None = None,
    **change: Any,
) -> Run:  # fmt: skip
    spec = lucky.SPEC.model_validate(lucky.SPEC.model_dump() | change)
    folder = base / "online"
    result = train_online(
        spec, lucky.task(credit=credit), model, folder / "model", engine=engine or EngineSpec(live=6), seed=5,
        folder=folder, on_update=on_update,
    )  # fmt: skip
    return result, read_updates(folder)


@pytest.fixture(scope="module")
def alone(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that others are compared with: in one process, on policy."""
    return run(model, tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def off_policy(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(model, tmp_path_factory.mktemp("off-policy"), off_policy=True)


def rollouts(base: Path, update: int) -> list[Rollout]:
    return list(read_jsonl(base / "online" / "rollouts" / f"{update:04d}.jsonl", Rollout))


def test_a_policy_learns_to_say_lucky_words(model: Path, tmp_path: Path) -> None:
    result, updates = run(model, tmp_path, updates=15, group=8, questions=4, checkpoint_steps=50)
    rewards = [update.mean_reward for update in updates]
    assert statistics.mean(rewards[:3]) < 0.25
    assert statistics.mean(rewards[-3:]) > 0.5
    assert all(update.kl is not None and update.kl > 0 for update in updates[1:]), "it moves away from the reference"
    assert (result.reward_first, result.reward_last) == (rewards[0], rewards[-1])


def test_the_first_update_is_a_step_on_advantages_by_hand(model: Path, tmp_path: Path) -> None:
    """The policy at the start is π_old and π_ref: only the advantages push, and the reference holds nothing back."""
    result, [update] = run(model, tmp_path, updates=1, weight_decay=0.0, max_grad_norm=0.0)
    done = rollouts(tmp_path, 1)
    policy = load_model(model, attention="eager")
    total, tokens = torch.zeros(()), 0
    for one in done:
        group = [other.rewards["reward"] for other in done if other.question.id == one.question.id]
        spread = statistics.stdev(group)
        advantage = (one.rewards["reward"] - statistics.mean(group)) / (spread + 1e-4) if spread else 0.0
        ids, mask = one.main.token_ids, one.main.agent_mask
        logprobs = torch.log_softmax(policy(torch.tensor([ids])).logits[0], -1)
        for place in range(1, len(ids)):
            if mask[place]:
                ratio = torch.exp(logprobs[place - 1, ids[place]] - one.main.logprobs[place])
                assert ratio.item() == pytest.approx(1, abs=1e-4)
                total, tokens = total - ratio * advantage, tokens + 1
    loss = total / tokens
    optimizer = torch.optim.AdamW(policy.parameters(), lr=lucky.SPEC.learning_rate, weight_decay=0.0)
    torch.autograd.backward(loss)
    optimizer.step()
    assert update.loss == pytest.approx(loss.item(), abs=1e-5)
    assert update.kl == pytest.approx(0, abs=1e-8)
    found, expected = load_file(Path(result.model) / "model.safetensors"), policy.state_dict()
    for name, tensor in found.items():
        # Adam's first step is the gradient's sign where it is not nearly zero.
        close = (tensor - expected[name]).abs() < 2e-3
        assert close.float().mean() > 0.995, name


def test_a_credit_prepares_groups_once_and_what_it_samples_is_recorded_but_not_learned(
    model: Path, tmp_path: Path, alone: Run, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        result, updates = run(model, tmp_path, credit=StepProgress())
    assert result.weights != alone[0].weights
    plain = {name: value for name, value in updates[0].rewards.items() if name != "progress"}
    assert plain == alone[1][0].rewards, "the rollouts are those of any credit"
    for update in updates:
        groups = list(read_jsonl(tmp_path / f"online/rollouts/prepared/{update.update:04d}.jsonl", PreparedGroup))
        sampled = {one.id: one for one in rollouts(tmp_path, update.update)}
        prepared = [one for group in groups for one in group.rollouts]
        assert {one.id for one in prepared} == set(sampled)
        for name, attempts in (("reward", sampled.values()), ("progress", prepared)):
            assert update.rewards[name] == pytest.approx(statistics.fmean(one.rewards[name] for one in attempts))
        assert all(one.main.token_ids == sampled[one.id].main.token_ids for one in prepared)
        probes = {(one.question.id, history(one)): one.others for one in prepared}
        assert update.preparation is not None
        assert update.preparation.requests == 2 * len(probes), "equal beginnings are continued once"
        assert update.preparation.tokens == sum(len(p.token_ids) - len(h) for (_, h), ps in probes.items() for p in ps)
        learned = {}
        for group in groups:
            learned |= {
                one.rollout: one.turns
                for one in turn_credits(group.rollouts, StepProgress().advantages(group.rollouts))
            }
        file = credit_file(tmp_path / f"online/rollouts/{update.update:04d}.jsonl")
        assert {one.rollout: one.turns for one in read_jsonl(file, RolloutCredit)} == learned
        assert learned.keys() == sampled.keys()
        assert update.trajectories == update.rollouts == 3 * 4
        assert update.tokens_sampled == update.tokens_trained == sum(sum(o.main.agent_mask) for o in sampled.values())
    assert f"{updates[-1].preparation.tokens} for credit in" in caplog.text  # type: ignore[union-attr]
    one = prepared[0]
    mean = sum(token in lucky.LUCKY for p in one.others for token in p.token_ids[len(history(one)) :]) / 4
    assert one.main.turns[0].rewards == {"progress": mean}
    assert updates[0].preparation is not None
    assert alone[1][0].preparation is None
    assert "preparation" not in (Path(alone[0].model).parent / "updates.jsonl").read_text()


def test_every_half_has_the_advantage_of_its_own_reward() -> None:
    """Progress 1, 0, 0, 0: a mean of 1/4 and a deviation of 1/2; rewards 0 and 1 by halves: 1/2 and √(1/3)."""
    group = []
    for attempt, (first, reward) in enumerate(((1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.0, 1.0))):
        turn = Turn(speaker="agent", text="", start=1, end=4, rewards={"progress": first})
        main = Trajectory(
            role="agent",
            id="agent",
            token_ids=(1, 2, 3, 4),
            agent_mask=(0, 1, 1, 1),
            logprobs=(0.0,) * 4,
            turns=(turn,),
        )
        group.append(
            Rollout(
                question=lucky.question(0),
                attempt=attempt,
                seed=0,
                main=main,
                outcome="answered",
                rewards={"reward": reward},
                weights="w",
                corpus="c",
            )
        )
    found = StepProgress().advantages(group)
    high, low, late = 0.75 / 0.5001, -0.25 / 0.5001, 0.5 / (3**-0.5 + 1e-4)
    assert [list(found[TrajectoryKey(one.id, "agent")]) for one in group] == [
        pytest.approx([0, high, high, -late]),
        pytest.approx([0, low, low, late]),
        pytest.approx([0, low, low, -late]),
        pytest.approx([0, low, low, late]),
    ]


def test_online_run_writes_model_rollouts_and_updates(model: Path, tmp_path: Path) -> None:
    result, updates = run(model, tmp_path, max_length=5)
    folder = tmp_path / "online"
    assert sorted(path.name for path in folder.iterdir()) == ["model", "rollouts", "train.json", "updates.jsonl"]
    assert json.loads((folder / "train.json").read_text()) == result.model_dump(mode="json")
    assert result.weights == weights_digest(folder / "model") != weights_digest(model)
    assert result.parents["model"] == weights_digest(model)
    assert [update.update for update in updates] == [1, 2, 3, 4]
    versions = [update.weights for update in updates]
    assert versions[0] == weights_digest(model)
    assert len({*versions, result.weights}) == 5
    for update in updates:
        done = rollouts(tmp_path, update.update)
        assert {one.weights for one in done} == {update.weights}
        assert len(done) == update.rollouts == update.trajectories == 3 * 4
        assert update.mean_reward == update.rewards["reward"]
        assert update.rewards["any"] == pytest.approx(statistics.mean(one.rewards["any"] for one in done))
        assert update.tokens_sampled == sum(sum(one.main.agent_mask) for one in done)
        assert update.tokens_trained == sum(sum(one.main.agent_mask[:5]) for one in done)
        assert update.truncated == sum(len(one.main.token_ids) > 5 for one in done)
    assert [update.learning_rate for update in updates] == sorted((u.learning_rate for u in updates), reverse=True)
    assert result.rollouts == 48
    assert result.tokens_trained == sum(update.tokens_trained for update in updates)
    questions = [one.question.id for update in range(1, 5) for one in rollouts(tmp_path, update)]
    assert len(set(questions)) == 8, "twelve places in a row of passes through eight questions"


def test_a_finished_run_is_not_repeated(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = run(model, tmp_path, updates=1)
    monkeypatch.setattr(PolicyTrainer, "train", None)
    assert run(model, tmp_path, updates=1)[0] == first


def test_policy_without_updates_is_unchanged(model: Path, tmp_path: Path) -> None:
    result, updates = run(model, tmp_path, updates=0)
    assert (result.skipped, result.weights, updates) == ("updates is 0", weights_digest(model), [])
    assert weights_digest(result.model) == result.weights
    assert run(model, tmp_path, updates=0)[0] == result


def test_evaluations_see_the_weights_of_their_update(model: Path, tmp_path: Path, alone: Run) -> None:
    seen: list[tuple[int, str]] = []

    def on_update(number: int, engine: SamplingEngine) -> None:
        seen.append((number, engine.weight_version))
        torch.manual_seed(number)  # what an evaluation draws changes nothing

    quiet, updates = alone
    result, _ = run(model, tmp_path, evaluate_every=2, on_update=on_update)
    assert seen == [(2, updates[2].weights), (4, result.weights)]
    assert result.weights == quiet.weights


def test_off_policy_rollouts_are_one_update_old_and_corrected_for(model: Path, off_policy: Run, alone: Run) -> None:
    (_, on_policy), (_, updates) = alone, off_policy
    assert updates[0].weights == updates[1].weights == weights_digest(model)
    assert len({update.weights for update in updates}) == 3
    assert updates[0].model_dump(include={"loss", "rewards", "grad_norm"}) == on_policy[0].model_dump(
        include={"loss", "rewards", "grad_norm"}
    )
    assert [update.statistics["ratio"] for update in on_policy] == pytest.approx([1] * 4, abs=1e-4)
    assert updates[0].statistics["ratio"] == pytest.approx(1, abs=1e-4)
    assert all(abs(update.statistics["ratio"] - 1) > 1e-3 for update in updates[1:])


def test_iterations_learn_from_the_same_rollouts_again(model: Path, tmp_path: Path) -> None:
    _, once = run(model, tmp_path / "once", updates=1)
    _, [update] = run(model, tmp_path / "thrice", updates=1, iterations=3)
    assert update.tokens_sampled == once[0].tokens_sampled
    assert update.tokens_trained == 3 * once[0].tokens_trained
    assert abs(update.statistics["ratio"] - 1) > 1e-3
    assert update.clip_fraction is not None
    assert update.clip_fraction > 0


def test_mini_batches_make_several_steps_on_an_updates_questions(model: Path, tmp_path: Path) -> None:
    """The first mini-batch has the first and the third of three questions: its loss is that of these two alone."""
    _, [once] = run(model, tmp_path / "once", updates=1, learning_rate=1e-9)
    _, [update] = run(model, tmp_path / "twice", updates=1, learning_rate=1e-9, mini_batches=2, iterations=2)
    assert update.tokens_trained == 2 * once.tokens_trained
    assert (once.optimizer_steps, update.optimizer_steps) == (1, 4)
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts(tmp_path / "twice", 1):
        groups.setdefault(rollout.question.id, []).append(rollout)
    order = [question.id for question in taken_up(lucky.task().questions, 1, 3, lambda _: "online pass 0 of seed 5")]

    def loss(names: list[str]) -> float:
        """A token's loss is minus its advantage where nothing has been learned, since ρ is 1."""
        pairs = [
            (advantage, sum(rollout.main.agent_mask))
            for name in names
            for rollout, advantage in zip(
                groups[name], group_advantages([one.rewards["reward"] for one in groups[name]]), strict=True
            )
        ]
        return -sum(advantage * tokens for advantage, tokens in pairs) / sum(tokens for _, tokens in pairs)

    assert once.loss == pytest.approx(loss(order), abs=1e-5)
    assert update.loss == pytest.approx((loss(order[::2]) + loss(order[1::2])) / 2, abs=1e-5)
    _, [learned] = run(model, tmp_path / "learned", updates=1, mini_batches=3)
    assert abs(learned.statistics["ratio"] - 1) > 1e-3, "the later steps are off the sampling policy"


def test_scaled_logits_train_the_policy_that_sampled(model: Path, tmp_path: Path) -> None:
    """Log-probabilities recorded at another temperature are not of the policy in training, yet ρ is 1."""
    task = replace(lucky.task(), temperature=0.5)
    spec = lucky.SPEC.model_copy(update={"updates": 1, "scale_logits": True})
    folder = tmp_path / "online"
    train_online(spec, task, model, folder / "model", engine=EngineSpec(live=6), seed=5, folder=folder)
    [update] = read_updates(folder)
    assert update.statistics["ratio"] == pytest.approx(1, abs=1e-6)
    assert update.kl == pytest.approx(0, abs=1e-8)
    _, [plain] = run(model, tmp_path / "plain", updates=1)
    assert update.loss == pytest.approx(plain.loss, abs=1e-5)  # advantages alone
    assert update.grad_norm != pytest.approx(plain.grad_norm, rel=0.05)


def test_entropy_and_ratios_are_recorded(alone: Run) -> None:
    """On policy all ratios are 1 but for rounding; a policy that learns to say some words is surer of them."""
    _, updates = alone
    assert [update.statistics["effective_sample_size"] for update in updates] == pytest.approx([1.0] * 4, abs=1e-4)
    assert [update.statistics["ratio_tail"] for update in updates] == [0.0] * 4
    entropies = [update.statistics["entropy"] for update in updates]
    assert 0 < entropies[-1] < entropies[0] < math.log(40)


def test_truncated_trajectories_are_left_out_of_the_loss_and_compared(model: Path, tmp_path: Path) -> None:
    _, [update] = run(model, tmp_path, updates=1, mask_truncated=True, normalization="sequence", learning_rate=1e-9)
    ends = special_tokens(load_tokenizer(model))
    done = rollouts(tmp_path, 1)
    cut = [one for one in done if one.main.token_ids[-1] not in ends]
    assert 0 < len(cut) < len(done)
    assert (update.masked, update.trajectories) == (len(cut), len(done) - len(cut))
    total = 0.0
    for one in done:
        group = [other.rewards["reward"] for other in done if other.question.id == one.question.id]
        total -= 0.0 if one in cut else group_advantages(group)[group.index(one.rewards["reward"])]
    assert update.loss == pytest.approx(total / len(done), abs=1e-5)


def test_questions_replace_those_that_teach_nothing(model: Path, tmp_path: Path) -> None:
    credit = GroupAdvantage("any")  # 0 or 1, often the same for both attempts
    _, updates = run(model, tmp_path, credit=credit, reward="any", group=2, questions=2, refills=2)
    assert sum(update.replaced for update in updates) > 0
    for update in updates:
        groups = update.rollouts // 2
        assert update.zero_variance == pytest.approx(update.replaced / groups)
        assert update.trajectories == 2 * (groups - update.replaced) <= 4
        assert groups <= 6


def test_engine_correction_weighs_tokens_by_the_trainers_probability(model: Path, tmp_path: Path, alone: Run) -> None:
    """An engine in the process has the trainer's own probabilities: weights of 1, and the same run."""
    result, updates = run(model, tmp_path, engine_correction={"level": "token", "maximum": 2.0})
    assert [update.statistics["importance"] for update in updates] == pytest.approx([1.0] * 4, abs=1e-4)
    assert [update.statistics["importance_truncated"] for update in updates] == [0.0] * 4
    assert [update.loss for update in updates] == pytest.approx([update.loss for update in alone[1]], abs=1e-3)
    assert result.inputs != alone[0].inputs


def test_log_probability_difference_is_to_the_engine_under_a_correction(model: Path, tmp_path: Path) -> None:
    engine = EngineSpec(live=6, dtype="bfloat16")
    _, [update] = run(model, tmp_path, engine, updates=1, engine_correction={"level": "token"})
    assert update.statistics["ratio"] == pytest.approx(1, abs=1e-6), (
        "the trainer's probabilities are those before the step"
    )
    assert update.statistics["logprob_difference"] > 1e-4


@pytest.mark.parametrize("which", ["alone", "off_policy"])
def test_a_server_in_the_same_job_samples_as_an_engine_in_the_process(
    model: Path, tmp_path: Path, which: str, request: pytest.FixtureRequest
) -> None:
    """The server also samples beside the training."""
    expected, _ = request.getfixturevalue(which)
    other = save_model(tmp_path / "other", seed=1)
    with serving(other) as (url, served):
        engine = EngineSpec(engine="openai", url=url, live=6)
        result, updates = run(model, tmp_path, engine, off_policy=which == "off_policy")
    assert result.weights == expected.weights
    assert served.reloads == 1 + len(updates), "it held other weights at first"
    assert {path.name for path in (tmp_path / "online").iterdir()} == {
        "model", "rollouts", "train.json", "updates.jsonl",
    }  # fmt: skip


def test_a_server_that_keeps_its_weights_ends_the_run(model: Path, tmp_path: Path) -> None:
    with serving(model, deaf=True) as (url, served), pytest.raises(WeightsMismatch):
        run(model, tmp_path, EngineSpec(engine="openai", url=url, live=6))
    assert served.reloads == 2, "the first changed nothing, and need not"
    assert len(read_updates(tmp_path / "online")) == 1


def test_gdpo_without_the_reward_that_the_run_reports_is_refused(model: Path, tmp_path: Path) -> None:
    credit = GroupAdvantage("f1", GdpoCreditSpec(type="gdpo", weights={"any": 1.0}))
    with pytest.raises(UserError, match=r"no reward 'f1' \(it has any, reward\); name one of these in online.reward"):
        run(model, tmp_path, credit=credit, reward="f1")


def test_scaled_logits_of_greedy_samples_are_refused(model: Path, tmp_path: Path) -> None:
    spec = lucky.SPEC.model_copy(update={"scale_logits": True})
    task = replace(lucky.task(), temperature=0.0)
    with pytest.raises(UserError, match=r"sampling.temperature, which is 0; set a temperature above 0"):
        train_online(spec, task, model, tmp_path / "model", engine=EngineSpec(), seed=5, folder=tmp_path)


def test_no_questions_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no questions"):
        train_online(
            lucky.SPEC, lucky.task(count=0), model, tmp_path / "online" / "model", engine=EngineSpec(), seed=5,
            folder=tmp_path / "online",
        )  # fmt: skip


def two_processes(model: Path, base: Path, jobs: dict[str, tuple[dict[str, Any], str | None]]) -> None:
    script = str(Path(__file__).with_name("run_task.py"))
    finished = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            script, str(model), str(base), json.dumps(jobs),
        ],
        env=environment(),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr[-3000:]


def assert_same_run(folder: Path, alone: Run) -> None:
    result, updates = alone
    for one, two in zip(updates, read_updates(folder), strict=True):
        assert two.rewards == one.rewards
        assert two.rollouts == one.rollouts
        assert two.loss == pytest.approx(one.loss, abs=2e-4)
        assert two.grad_norm == pytest.approx(one.grad_norm, rel=2e-3)
    files = sorted(path.name for path in (folder / "rollouts").glob("*.rank?.jsonl"))
    assert files == [f"{update:04d}.rank{rank}.jsonl" for update in range(1, 5) for rank in range(2)]
    tensors = load_file(folder / "model" / "model.safetensors")  # DeepSpeed's holds a tied output matrix too
    for name, tensor in load_file(Path(result.model) / "model.safetensors").items():
        torch.testing.assert_close(tensors[name], tensor, atol=1e-3, rtol=1e-3, msg=name)


@pytest.mark.slow  # tests/training/test_steps.py trains with two processes
def test_online_run_with_two_processes_equals_one_process(model: Path, tmp_path: Path, alone: Run) -> None:
    with serving(model) as (url, server):
        two_processes(model, tmp_path, {"own": ({}, None), "served": ({}, url), "stepwise": ({}, None)})
        assert server.reloads == 4, "one process speaks for both"
    for name in ("own", "served"):
        assert_same_run(tmp_path / name / "online", alone)
    stepwise = run(model, tmp_path / "stepwise-alone", credit=StepProgress())
    assert_same_run(tmp_path / "stepwise" / "online", stepwise)
    costs = [update.preparation for update in (*stepwise[1], *read_updates(tmp_path / "stepwise" / "online"))]
    assert [cost and (cost.requests, cost.tokens) for cost in costs[:4]] == [
        cost and (cost.requests, cost.tokens) for cost in costs[4:]
    ]


def test_online_run_under_zero_equals_one_process(model: Path, tmp_path: Path, alone: Run) -> None:
    pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    two_processes(model, tmp_path, {"zero2": ({"deepspeed": "zero2"}, None)})
    assert_same_run(tmp_path / "zero2" / "online", alone)
