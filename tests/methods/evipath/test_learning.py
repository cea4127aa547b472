"""Learned tokens of a path: the agent's own words and no others, as TRL masks them and as the agent records them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from platform_sdk.agents.planner_worker import Malformed, Reading
from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import SamplingSpec
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.world import generate
from platform_sdk.errors import UserError
from platform_sdk.methods.evipath.agent import evipath
from platform_sdk.methods.evipath.checks import Limits, judged
from platform_sdk.methods.evipath.dialogues import chats, rollouts, trajectories
from platform_sdk.methods.evipath.evidence import Similarity
from platform_sdk.methods.evipath.grammar import NOTHING_FOUND, parse_executor, parse_planner
from platform_sdk.methods.evipath.learning import Dialogues
from platform_sdk.methods.evipath.proxy import Proxy, grouped
from platform_sdk.methods.evipath.records import Example
from platform_sdk.methods.evipath.rules import Rules
from platform_sdk.methods.evipath.settings import AgentSpec, LearningSpec, Role, SynthesisSpec
from platform_sdk.methods.evipath.synthesis import EXAMPLES, REJECTED, SynthesisCarry
from platform_sdk.methods.evipath.teacher import AbductiveTeacher
from platform_sdk.methods.evipath.teacher_prompts import TeacherPrompts
from platform_sdk.methods.method import RunContext, Sampling
from platform_sdk.record_files import digest_records, write_jsonl
from platform_sdk.records import Evidence, Question, Rollout
from platform_sdk.sampling.engine import Request
from platform_sdk.sampling.rollout import SearchRequest, run
from platform_sdk.training.examples import examples_of
from tests.methods.evipath.paths import LetterEncoder, played
from tests.methods.mygo.scripted import TOKENIZER, Scripted, say

WORLD = generate(WorldSpec(entities=40, train_questions=12, eval_questions=0, hops=(1, 2, 3)))


PROXY = Proxy("kg", grouped(WORLD.triples), WORLD.passages, 2, 0)
ROLES: tuple[Role, ...] = ("planner", "executor")


def path_of(question: Question, shown: int | None = 4) -> Example:
    return played(Rules(PROXY, SynthesisSpec(shown=shown), Similarity(LetterEncoder()), "letters", 0).example(question))


PATHS = [path_of(question) for question in WORLD.train]
WHOLE = [path_of(question, shown=None) for question in WORLD.train]
"""The paths with all evidence in the executors' prompts, so that no draw decides on them."""


def test_only_agent_tokens_are_learned() -> None:
    for path in PATHS:
        for chat, trajectory in zip(
            chats(path, "compact", 5, ("planner", "executor")), trajectories(path, "compact", 5, TOKENIZER), strict=True
        ):
            learned = [t for t, mask in zip(trajectory.token_ids, trajectory.agent_mask, strict=True) if mask]
            wanted = [token for text in chat.turns[1::2] for token in say(text)]
            assert learned == wanted


def test_turns_after_a_template_that_opens_thoughts_follow_the_agents_grammar() -> None:
    tokenizer = type(TOKENIZER)(tokenizer_object=TOKENIZER._tokenizer, eos_token="<|end|>")
    tokenizer.chat_template = TOKENIZER.chat_template + "{% if add_generation_prompt %}{{ '<think>' }}{% endif %}"
    made = rollouts(PATHS[0], WORLD.train[0], "compact", 5, ROLES, 1.0, tokenizer, "w", "c")
    learned = [trajectory for rollout in made for trajectory in rollout.trajectories]
    assert len(made) > 1, "some executors lack the gold evidence"
    for trajectory in learned:
        for turn in trajectory.agent_turns:
            assert turn.text.count("<think>") == 1
            if trajectory.role == "planner":
                assert not isinstance(parse_planner(turn.text, "kg", candidates=9, max_questions=5), Malformed)
            else:
                reading = parse_executor(turn.text, materials=9)
                assert isinstance(reading, Reading)
                assert reading.selected == trajectory.selected


def test_mask_is_that_of_trl_on_the_same_chats(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="trl is not installed; pip install -e '.[dev]'")
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    found = [
        (chat, trajectory)
        for path in PATHS[:4]
        for chat, trajectory in zip(
            chats(path, "compact", 5, ("planner", "executor")), trajectories(path, "compact", 5, TOKENIZER), strict=True
        )
    ]
    template = (
        "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}{% if message['role'] == 'assistant' %}"
        "{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}"
        "{% else %}{{ message['content'] + '<|end|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    tokenizer = type(TOKENIZER)(tokenizer_object=TOKENIZER._tokenizer, eos_token="<|end|>", pad_token="<|pad|>")
    tokenizer.chat_template = template
    config = LlamaConfig(
        vocab_size=len(TOKENIZER), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    trainer = SFTTrainer(
        model=LlamaForCausalLM(config),
        args=SFTConfig(
            output_dir=str(tmp_path), assistant_only_loss=True, max_length=None, report_to="none", use_cpu=True
        ),
        train_dataset=Dataset.from_list([{"messages": chat.messages} for chat, _ in found]),
        processing_class=tokenizer,
    )
    rows = [(row["input_ids"], [int(label != -100) for label in row["labels"]]) for row in trainer.train_dataset]
    assert rows == [(list(t.token_ids), list(t.agent_mask)) for _, t in found]


@pytest.mark.parametrize(
    ("roles", "learned"),
    [(("planner", "executor"), {"planner", "worker"}), (("planner",), {"planner"}), (("executor",), {"worker"})],
)
def test_roles_that_are_learned(roles: Any, learned: set[str]) -> None:
    path, question = PATHS[0], WORLD.train[0]
    made = rollouts(path, question, "compact", 5, roles, 0.0, TOKENIZER, "w", "c")
    assert {t.role for rollout in made for t in rollout.trajectories} == learned
    assert len({example.id for example in examples_of(made)}) == sum(len(rollout.trajectories) for rollout in made)


def test_executor_without_the_evidence_learns_to_say_so() -> None:
    """The dialogue is the agent's own with other evidence in place of the gold; a smaller share is part of a larger."""
    learned: dict[float, set[str]] = {}
    for share in (0.3, 1.0):
        learned[share] = set()
        for path, question in zip(PATHS, WORLD.train, strict=True):
            made = rollouts(path, question, "compact", 5, ("planner", "executor"), share, TOKENIZER, "w", "c")
            gold = {path.pool[place].id for place in path.gold}
            if share == 1:
                others = len(path.pool) - len(path.gold)
                pieces = [min(len(asked.shown), others) for asked in path.asked() if {*asked.shown} - {*path.gold}]
                assert [len(rollout.main.evidence) for rollout in made[1:]] == pieces
            for rollout in made[1:]:
                assert (rollout.main.role, rollout.main.answer, rollout.main.selected) == ("worker", NOTHING_FOUND, ())
                assert rollout.main.evidence
                assert not gold & {item.id for item in rollout.main.evidence}
                said = [t for t, m in zip(rollout.main.token_ids, rollout.main.agent_mask, strict=True) if m]
                assert said == list(say(NOTHING_FOUND))
                learned[share].add(rollout.main.turns[0].text)
            assert (
                made[0] == rollouts(path, question, "compact", 5, ("planner", "executor"), 0.0, TOKENIZER, "w", "c")[0]
            )
    assert 0 < len(learned[0.3]) < len(learned[1.0])
    assert learned[0.3] < learned[1.0]


def test_teacher_that_says_what_it_was_trained_on_writes_the_same_path() -> None:
    """The compact prompts that a teacher is trained on are the prompts that it meets in the abductive mode."""
    for path, question in zip(WHOLE, WORLD.train, strict=True):
        trained = TeacherPrompts("compact", "kg", 5).chats(path, ("planner", "executor"))
        asked = list(path.asked())
        made = rollouts(path, question, "compact", 5, ROLES, 0.0, TOKENIZER, "w", "c", tuple(trained))[1:]
        told = {
            tuple(rollout.main.token_ids[: turn.start]): turn.text
            for rollout in made
            for turn in rollout.main.turns
            if turn.speaker == "agent"
        }
        assert [rollout.main.role for rollout in made] == ["planner", *["worker"] * 2 * len(asked)]
        named = {sub.answer: {item.text for item in path.evidence_selected(sub)} for sub in asked}

        def compare(items: Any, named: dict[str, set[str]] = named) -> list[tuple[float, ...]]:
            return [tuple(float(text in named[item.sentence]) for text in item.evidence) for item in items]

        def policy(request: Request, told: dict[tuple[int, ...], str] = told) -> list[int]:
            return say(told[tuple(request.token_ids)])

        teacher = AbductiveTeacher(
            Policy(TOKENIZER, "w"), Decoding(), AgentSpec(prompts="compact"), SynthesisSpec(), PROXY, compare, "e", 0
        )
        [written] = run([partial(teacher.example, question, 0)], Scripted(policy), live=2)  # type: ignore[arg-type]
        checked = judged(written, Limits("compact", 5, 8))
        assert checked.kept, checked.detail
        for ours, theirs in zip(chats(written, "compact", 5, ROLES), chats(path, "compact", 5, ROLES), strict=True):
            assert ours.turns == theirs.turns


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({}, {"teacher_prompts": True}, "teacher_prompts: .* set agent.prompts: compact"),
        ({"gold": ()}, {"teacher_prompts": True}, "teacher_prompts: .* no gold evidence"),
        ({"gold": ()}, {"unanswerable": 0.1}, "unanswerable: .* no gold evidence"),
    ],
)
def test_learning_that_needs_compact_prompts_or_gold_evidence_is_refused_without_them(
    tmp_path: Path, changes: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    dialogues = Dialogues()
    paths = [PATHS[0].model_copy(update=changes)]
    write_jsonl(tmp_path / "synthesis" / EXAMPLES, Example, paths)
    carry = SynthesisCarry(phase="synthesis", examples=digest_records(paths))
    context = RunContext(
        run_dir=tmp_path, environment="world-kg", agent=AgentSpec(), sampling=SamplingSpec(),
        retrieval=RetrievalSpec.model_validate({}), searched_digest="c", seed=0,
    )  # fmt: skip
    asked: Any = SimpleNamespace(run=context, settings=LearningSpec(**settings), carry=carry, model="m")
    with pytest.raises(UserError, match=f"^learning.{message}"):
        dialogues.sample(asked)


def test_learning_from_no_kept_path_has_no_rollouts(tmp_path: Path) -> None:
    rejected = PATHS[0].model_copy(update={"rejected": "leak", "detail": "d"})
    write_jsonl(tmp_path / "synthesis" / EXAMPLES, Example, [])
    write_jsonl(tmp_path / "synthesis" / REJECTED, Example, [rejected])
    write_jsonl(tmp_path / "corpus/questions.train.jsonl", Question, WORLD.train)
    context = RunContext(
        run_dir=tmp_path, environment="world-kg", agent=AgentSpec(), sampling=SamplingSpec(),
        retrieval=RetrievalSpec.model_validate({}), searched_digest="c", seed=0,
    )  # fmt: skip
    carry = SynthesisCarry(phase="synthesis", examples=digest_records([]))
    spec = LearningSpec(unanswerable=0.1)
    found = Dialogues().sample(Sampling(context, "finetuning", 0, "hopforge:world-base", spec, carry))
    assert (found.rollouts, found.figures) == ([], {"paths": 0})


def test_agent_that_says_what_was_synthesised_records_the_same_dialogues(tmp_path: Path) -> None:
    """The prompts that are trained on are the prompts that the agent meets."""
    for path, question in zip(PATHS, WORLD.train, strict=True):
        told = {
            tuple(trajectory.token_ids[: turn.start]): turn.text
            for trajectory in trajectories(path, "compact", 5, TOKENIZER)
            for turn in trajectory.turns
            if turn.speaker == "agent"
        }
        shown = {sub.question: list(path.evidence(sub)) for sub in path.asked()}

        def search(requests: Any, k: int, shown: dict[str, list[Evidence]] = shown) -> list[list[Evidence]]:
            return [shown[request.query] for request in requests if isinstance(request, SearchRequest)]

        def policy(request: Request, told: dict[tuple[int, ...], str] = told) -> list[int]:
            return say(told[tuple(request.token_ids)])

        context = RunContext(
            run_dir=tmp_path, environment="world-kg", agent=AgentSpec(prompts="compact"), sampling=SamplingSpec(),
            retrieval=RetrievalSpec.model_validate({}), searched_digest="c", seed=0,
        )  # fmt: skip
        agent = evipath(context, Policy(TOKENIZER, "w"), Decoding(), "test", search)
        [rollout] = run([partial(agent.rollout, question, 0)], Scripted(policy), live=2)  # type: ignore[arg-type]
        assert isinstance(rollout, Rollout)
        assert rollout.rewards == {"em": 1.0, "f1": 1.0, "well_formed": 1.0}
        synthesised = trajectories(path, "compact", 5, TOKENIZER)
        assert [t.token_ids for t in rollout.trajectories] == [t.token_ids for t in synthesised]
        assert [t.agent_mask for t in rollout.trajectories] == [t.agent_mask for t in synthesised]
