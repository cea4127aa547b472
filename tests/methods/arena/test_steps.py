"""The steps of a run with a tiny random model: evaluate, train online and resume, demonstrate, score again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.data.dataset import prepare
from platform_sdk.methods import steps
from platform_sdk.methods.arena.agent import Generator
from platform_sdk.methods.arena.method import METHOD
from platform_sdk.methods.arena.settings import AgentSpec, DemonstrationSpec, EvaluationSettings
from platform_sdk.methods.launch import EvaluateStep, SampleStep, launch
from platform_sdk.methods.method import NoCarry, RunContext
from platform_sdk.record_files import read_jsonl, write_jsonl
from platform_sdk.records import Question, Rollout
from platform_sdk.sampling.rollout import Agent
from tests.methods.arena.talking import character_tokenizer
from tests.methods.contexts import plain

PART = {"train": ("t1", "t2", "t3", "t4"), "eval": ("e1", "e2")}
AGENT = {
    "form": "direct",
    "prompts": "compact",
    "max_tokens": 12,
    "rewards": {"extra": {"vowels": {"function": f"{__name__}:vowels", "weight": 2.0}}},
}
ENGINE: dict[str, Any] = {"engine": {"engine": "transformers", "live": 4}, "temperature": 1.0}
ONLINE = OnlineSpec(updates=3, questions=2, group=4, learning_rate=1e-2, checkpoint_steps=1, evaluate_every=2)
Run = RunContext[AgentSpec]
EVALUATION = EvaluationSettings(max_tokens=8)


def vowels(rollout: Rollout) -> float:
    """A reward that a random model varies in."""
    return float(sum(letter in "aeiou" for letter in (rollout.main.answer or "")))


def records(names: tuple[str, ...], evidences: bool) -> list[dict[str, Any]]:
    context = [["T1", ["a."]], ["T2", ["b."]]]
    plain = {"question": "Who?", "answer": "Ann", "supporting_facts": [["T2", 0]], "context": context}
    return [{"_id": name, **plain, **({"evidences": []} if evidences else {})} for name in names]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny"
    tokenizer = character_tokenizer()
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=512, bos_token_id=None, eos_token_id=tokenizer.eos_token_id, initializer_range=0.2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def new_run(folder: Path, environment: str = "distractor", retrieval: Any = None, **agent: Any) -> Run:
    """A run whose questions are of two datasets: what is trained on is not evaluated on, and the other way round."""
    data = folder.parent / "data"
    data.mkdir(exist_ok=True)
    (data / "train.json").write_text(json.dumps(records(PART["train"], evidences=False)))
    (data / "h.json").write_text(json.dumps(records(PART["eval"][:1], evidences=False)))
    (data / "w.json").write_text(json.dumps(records(PART["eval"][1:], evidences=True)))
    mixture = [
        {"format": "hotpotqa", "train": "train.json", "eval": "h.json"},
        {"format": "2wikimultihopqa", "eval": "w.json"},
    ]
    prepared = prepare(DatasetSpec.model_validate({"format": "mixed", "mixture": mixture}), data, folder)
    own = {"searched_digest": prepared.passages, "seed": 5}
    return METHOD.context(plain(folder, environment, {**AGENT, **agent}, ENGINE, retrieval or {}, **own))


def rollouts(folder: Path) -> list[str]:
    files = sorted(folder.glob("online/rollouts/*.jsonl"))
    return sorted(rollout.model_dump_json() for file in files for rollout in read_jsonl(file, Rollout))


@pytest.fixture(scope="module")
def undisturbed(model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Any]:
    run = new_run(tmp_path_factory.mktemp("undisturbed") / "run")
    return run, steps.online(METHOD, run, "online", model, ONLINE, EVALUATION)


def test_an_evaluation_names_what_the_form_has_and_splits_by_dataset(model: str, tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    evaluated = steps.evaluate(METHOD, run, "eval-start", model, EVALUATION)
    names = {"em", "f1", "arena_em", "arena_f1", "prec", "recall", "reward", "vowels", "answered", "tokens"}
    datasets = ("hotpotqa", "2wikimultihopqa")
    split = {f"{name}_{dataset}" for name in ("em", "f1", "arena_em", "arena_f1") for dataset in datasets}
    greedy = {f"{name}_greedy" for name in ("em", "f1")}
    greedy |= {f"{name}_{dataset}_greedy" for name in ("em", "f1") for dataset in datasets}
    assert evaluated.metrics.keys() == names | split | greedy
    scores = json.loads(evaluated.path.read_text())
    assert (scores["n"], scores["metrics"]["em_hotpotqa"]["n"]) == (2, 1)
    assert evaluated.metrics["tokens"] <= EVALUATION.max_tokens
    again = steps.evaluate(METHOD, run, "eval-start", model, EVALUATION)
    assert again == evaluated


def test_evaluation_with_two_processes_equals_one_process(model: str, tmp_path: Path) -> None:
    one, two = (new_run(tmp_path / name) for name in ("one", "two"))
    alone = steps.evaluate(METHOD, one, "eval-start", model, EVALUATION)
    step = EvaluateStep(
        method="arena", run_dir=two.run_dir, phase="eval-start", model=model, environment=two.environment,
        agent=two.agent.model_dump(mode="json"), sampling={**ENGINE, "engine": {**ENGINE["engine"], "processes": 2}},
        retrieval={}, searched_digest=two.searched_digest, seed=two.seed, evaluation=EVALUATION.model_dump(mode="json"),
    )  # fmt: skip
    shared = launch(step)
    assert (shared.digest, shared.metrics) == (alone.digest, alone.metrics)
    # What several have done is one process's outcome, and the other way round.
    assert steps.evaluate(METHOD, two, "eval-start", model, EVALUATION) == shared
    files = sorted(path.name for path in shared.path.parent.iterdir())
    official = [
        f"predictions{kind}-{name}.json" for kind in ("", "-greedy") for name in ("2wikimultihopqa", "hotpotqa")
    ]
    made = ["begun.json", "evaluate-step.json", *official, "rollouts.jsonl", "rollouts.seconds.json", "scores.json"]
    assert files == sorted([".rollouts.jsonl.sha256", *made])


def test_online_training_learns_a_recipes_own_reward(undisturbed: tuple[Run, Any]) -> None:
    run, result = undisturbed
    assert (result.updates, result.rollouts) == (3, 24)
    sampled = [Rollout.model_validate_json(line) for line in rollouts(run.run_dir)]
    assert {rollout.corpus for rollout in sampled} == {run.searched_digest}
    assert all(rollout.rewards["reward"] >= 2 * rollout.rewards["vowels"] for rollout in sampled)
    assert len({rollout.weights for rollout in sampled}) == 3  # every update moved the policy
    between = json.loads((run.run_dir / "eval-u0002/scores.json").read_text())
    assert between["n"] == 2
    means = steps.rescore(METHOD, run, "online")
    assert means["vowels"] == pytest.approx(sum(r.rewards["vowels"] for r in sampled) / 24)


def test_interrupted_online_run_equals_an_undisturbed_one(
    model: str, undisturbed: tuple[Run, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, expected = undisturbed
    run = new_run(tmp_path / "run")
    original, begun = Generator.rollout, iter(range(1000))

    def failing(self: Generator, question: Question, attempt: int) -> Agent[Rollout]:
        if next(begun) == 13:  # in the middle of update 2
            raise KeyboardInterrupt
        return original(self, question, attempt)

    monkeypatch.setattr(Generator, "rollout", failing)
    with pytest.raises(KeyboardInterrupt):
        steps.online(METHOD, run, "online", model, ONLINE, EVALUATION)
    monkeypatch.undo()
    torch.rand(7)  # whatever this process drew meanwhile
    assert 8 < len(rollouts(run.run_dir)) < 16
    result = steps.online(METHOD, run, "online", model, ONLINE, EVALUATION)
    assert result.weights == expected.weights
    assert rollouts(run.run_dir) == rollouts(whole.run_dir)


def test_rewards_that_were_changed_are_found(undisturbed: tuple[Run, Any], tmp_path: Path) -> None:
    whole, _ = undisturbed
    run = new_run(tmp_path / "run")
    first = [Rollout.model_validate_json(line) for line in rollouts(whole.run_dir)][:3]
    path = run.run_dir / "online/rollouts/0001.jsonl"
    write_jsonl(path, Rollout, first)
    assert steps.rescore(METHOD, run, "online")["reward"] == pytest.approx(sum(r.rewards["reward"] for r in first) / 3)
    better = first[1].model_copy(update={"rewards": {**first[1].rewards, "reward": 13.0}})
    write_jsonl(path, Rollout, [first[0], better])
    with pytest.raises(UserError, match=f"{better.id}: the recorded rewards differ"):
        steps.rescore(METHOD, run, "online")
    with pytest.raises(UserError, match="this phase does not exist"):
        steps.rescore(METHOD, run, "elsewhere")


def demonstrate(run: Run, model: str, **settings: Any) -> tuple[steps.SampleOutcome, steps.SelectOutcome]:
    """The baseline's phase as the components `sample` and `score` make it."""
    spec = DemonstrationSpec(**settings)
    sampled = steps.sample(METHOD, run, "demonstrations", "supervised", 0, model, spec, NoCarry())
    return sampled, steps.select(METHOD, run, "demonstrations", "supervised", spec, NoCarry())


def test_demonstrations_are_written_once(model: str, tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    made = demonstrate(run, model, questions=3)
    found = list(read_jsonl(made[1].path, Rollout))
    assert [rollout.main.turns[-1].text for rollout in found] == ["Ann"] * 3
    assert len({rollout.question.id for rollout in found}) == 3
    assert all(rollout.main.logprobs == () for rollout in found)
    assert (made[1].figures["demonstrations"], made[1].figures["selected"]) == (3, 3)
    assert (made[1].figures["rollouts"], made[1].figures["well_formed"]) == (0, None)  # JSON has no NaN
    candidates = run.run_dir / "supervised/candidates.jsonl"
    stamp = candidates.stat().st_mtime_ns
    assert demonstrate(run, model, questions=3) == made
    assert candidates.stat().st_mtime_ns == stamp
    with pytest.raises(UserError, match="other settings"):
        demonstrate(run, model, questions=2)


def test_rollout_of_an_unknown_question_is_an_alteration(model: str, tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    sampled, made = demonstrate(run, model, questions=1)
    [rollout] = read_jsonl(made.path, Rollout)
    unknown = rollout.question.model_copy(update={"id": "unknown"})
    write_jsonl(sampled.path, Rollout, [rollout.model_copy(update={"question": unknown})])
    with pytest.raises(UserError, match=r"rollouts.jsonl: changed since sampling"):
        steps.select(METHOD, run, "demonstrations", "supervised", DemonstrationSpec(questions=1), NoCarry())


def test_explanations_are_sampled_and_put_in_form(model: str, tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", form="three_part")
    sampled, made = demonstrate(run, model, reasoning_tokens=60)
    explained = list(read_jsonl(sampled.path, Rollout))
    assert len(explained) == made.figures["questions"] == 4
    whole = {rollout.question.id for rollout in explained if rollout.main.answer}
    found = list(read_jsonl(made.path, Rollout))
    assert {rollout.question.id for rollout in found} <= whole
    assert made.figures["left_out"] == 4 - len(found)
    assert all(rollout.rewards["reward"] >= 13 and rollout.main.selected == (1,) for rollout in found)


def test_quoted_explanations_need_no_sampling(model: str, tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", form="three_part")
    sampled, made = demonstrate(run, model, explanations="quoted")
    assert list(read_jsonl(sampled.path, Rollout)) == []
    found = list(read_jsonl(made.path, Rollout))
    assert {rollout.question.id for rollout in found} == {question.id for question in run.questions("train")}
    assert {rollout.main.turns[-1].text for rollout in found} == {
        "<relevance>[2]</relevance><analysis>b. [2]</analysis><answer>Ann</answer>"
    }
    assert all(rollout.rewards["bonus"] == 10 for rollout in found)


@pytest.mark.parametrize(
    ("form", "settings", "asks"),
    [("direct", {}, False), ("three_part", {}, True), ("three_part", {"explanations": "quoted"}, False)],
)
def test_demonstrations_ask_the_model_only_for_explanations(
    model: str, tmp_path: Path, form: str, settings: dict[str, str], asks: bool
) -> None:
    run = new_run(tmp_path / "run", form=form)
    step = SampleStep(
        method="arena", run_dir=run.run_dir, phase="supervised", model=model, environment=run.environment,
        agent=run.agent.model_dump(mode="json"), sampling=ENGINE, retrieval={}, searched_digest=run.searched_digest,
        seed=run.seed, step="demonstrations", iteration=0, settings=settings, carry={},
    )  # fmt: skip
    assert step.asks_model is asks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": "hotpot"}, "is not for ARENA"),
        ({"environment": "closed-book", "form": "three_part"}, "agent.form: environment closed-book has no passages"),
        ({"retrieval": {"encoder": "x"}}, "searches nothing"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        new_run(tmp_path / "run", **changes)


def test_other_passages_and_questions_without_any_are_refused(model: str, tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    with pytest.raises(UserError, match="holds passages"):
        METHOD.context(plain(run.run_dir, "distractor", AGENT, {}, {}, searched_digest="0" * 64))
    bare = [question.model_copy(update={"context": ()}) for question in run.questions("eval")]
    write_jsonl(run.run_dir / "corpus/questions.eval.jsonl", Question, bare)
    with pytest.raises(UserError, match="question e1 comes without passages"):
        steps.evaluate(METHOD, run, "eval-start", model, EVALUATION)
    with pytest.raises(UserError, match="no demonstrations of the form think"):
        demonstrate(new_run(tmp_path / "think", form="think"), model)
