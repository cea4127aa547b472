"""The generator's dialogues, the prompting baselines, the demonstrations: a policy says what the test tells it to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.methods.arena.agent import Generator
from platform_sdk.methods.arena.demonstrations import Explainer, direct_demonstration, reasoned_demonstration
from platform_sdk.methods.arena.grammar import parse, well_formed
from platform_sdk.methods.arena.prompts import example, instruction, opening
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.records import Passage
from tests.methods.arena.responses import QUESTION
from tests.methods.arena.talking import Script, character_tokenizer

WHOLE = "<relevance>[2,5]</relevance><analysis>[2] [5]</analysis><answer>Ann Lee</answer>"
TOKENIZER = character_tokenizer()


def generator(judge: Any = None, environment: Any = "distractor", **agent: Any) -> Generator:
    return Generator(
        policy=Policy(TOKENIZER, "w"),
        spec=AgentSpec.model_validate(agent),
        environment=environment,
        decoding=Decoding(temperature=0.9),
        max_tokens=64,
        corpus="c",
        seed=1,
        seed_name="p",
        judge=judge,
    )


def test_response_becomes_a_single_trajectory_with_the_passages_as_evidence() -> None:
    script = Script(TOKENIZER, lambda place, prompt: WHOLE)
    rollout = script.run(generator().rollout(QUESTION, 3))
    trajectory = rollout.main
    assert (rollout.id, rollout.outcome, rollout.others, trajectory.role) == ("q#3", "answered", (), "agent")
    assert [item.id for item in trajectory.evidence] == [passage.id for passage in QUESTION.context]
    assert (trajectory.selected, trajectory.answer) == ((1, 4), "Ann Lee")
    assert rollout.rewards == {
        "em": 1, "f1": 1, "format": 1, "accuracy": 1, "relevance": 1, "bonus": 10, "reward": 13
    }  # fmt: skip
    # Token for token: the prompt as the template writes it, then what was sampled, its end included, and nothing else.
    said = len(WHOLE) + 1
    assert sum(trajectory.agent_mask) == said == sum(trajectory.agent_mask[-said:])
    prompt = f"<|system|>{instruction('standard', 'three_part')}<|end|><|user|>{opening(QUESTION.text, QUESTION.context)}<|end|><|assistant|>"  # fmt: skip  # noqa: E501
    assert TOKENIZER.decode(trajectory.token_ids) == prompt + WHOLE + "<|end|>"
    assert trajectory.logprobs == (0.0,) * (len(trajectory.token_ids) - said) + (-0.5,) * said
    [asked] = script.asked
    assert (asked.params.temperature, asked.params.max_tokens) == (0.9, 64)


@pytest.mark.parametrize(("form", "worth"), [("three_part", {2, 3}), ("think", None), ("direct", None)])
def test_a_worked_example_comes_first_and_is_one(form: Any, worth: set[int] | None) -> None:
    script = Script(TOKENIZER, lambda place, prompt: WHOLE)
    rollout = script.run(generator(form=form, demonstrate=True).rollout(QUESTION, 0))
    asked, said = example("standard", form)
    prompt = TOKENIZER.decode(script.asked[0].token_ids)
    before = f"<|user|>{asked}<|end|><|assistant|>{said}<|end|>"
    assert f"{before}<|user|>{opening(QUESTION.text, QUESTION.context)}<|end|>" in prompt
    assert well_formed(said, form)
    assert (parse(said, form).answer, parse(said, form).relevance) == ("Lena Roth", worth)
    assert sum(rollout.main.agent_mask) == len(WHOLE) + 1  # the example is no turn of the policy's


def test_attempts_have_distinct_reproducible_seeds() -> None:
    def seeds(agent: Generator, attempt: int = 0) -> list[int]:
        script = Script(TOKENIZER, lambda place, prompt: WHOLE)
        script.run(agent.rollout(QUESTION, attempt))
        return [asked.params.seed for asked in script.asked]

    assert seeds(generator(), 0) == seeds(generator(), 0)
    others = [seeds(generator(), 1), seeds(replace(generator(), seed=2)), seeds(replace(generator(), seed_name="o"))]
    assert len({seed for drawn in [seeds(generator()), *others] for seed in drawn}) == 4


def test_passages_are_numbered_from_one_in_their_order() -> None:
    lines = opening("Who?", QUESTION.context[:2]).splitlines()
    assert lines == ["Question : Who?", "[1] T1 : Text 1.", "[2] T2 : Text 2."]


def test_numbers_also_follow_each_sentence_if_the_recipe_says_so() -> None:
    told = Passage(id="p", title="T", text="Mr. Roth left. He died in 1980.")
    question = QUESTION.model_copy(update={"context": (told, *QUESTION.context[:1])})
    lines = ["[1] T : Mr. Roth left. [1] He died in 1980. [1]", "[2] T1 : Text 1. [2]"]
    assert opening("Who?", question.context, "compact", "sentences").splitlines() == [*lines, "Question : Who?"]
    agent = generator(numbers="sentences", demonstrate=True)
    script = Script(TOKENIZER, lambda place, prompt: WHOLE)
    script.run(agent.rollout(question, 0))
    prompt = TOKENIZER.decode(script.asked[0].token_ids)
    assert "\n".join(lines) in prompt
    assert "She is the daughter of Lena Roth . [2]" in prompt  # of the worked example
    demonstrated = reasoned_demonstration(agent, question, "He died in 1980. [1]")
    assert demonstrated is not None
    assert "\n".join(lines) in TOKENIZER.decode(demonstrated.main.token_ids)


@pytest.mark.parametrize("form", ["think", "direct"])
def test_numbers_of_sentences_are_refused_where_no_passage_is_cited(form: str) -> None:
    with pytest.raises(ValidationError, match=f"numbers: sentences is for the form three_part, since {form} cites no"):
        AgentSpec(form=form, numbers="sentences")


@pytest.mark.parametrize(
    ("text", "selected", "answer", "outcome", "malformed"),
    [
        ("<relevance>[0,11,3,-1,3]</relevance><analysis></analysis><answer>x</answer>", (2,), "x", "answered", False),
        ("<answer>x</answer>", (), "x", "answered", True),
        ("<relevance>[2]</relevance><analysis>and so…cut", (1,), None, "iteration_limit", True),
        (None, (), None, "context_limit", None),
    ],
)
def test_unparsable_response_yields_no_invented_fields(
    text: str | None, selected: tuple[int, ...], answer: str | None, outcome: str, malformed: bool | None
) -> None:
    rollout = Script(TOKENIZER, lambda place, prompt: text).run(generator().rollout(QUESTION, 0))
    assert (rollout.main.selected, rollout.main.answer, rollout.outcome) == (selected, answer, outcome)
    if malformed is None:
        assert len(rollout.main.turns) == 1  # the prompt alone: nothing was said
        assert rollout.rewards["reward"] == 0
    else:
        assert (rollout.main.turns[-1].malformed is not None) == malformed


def test_closed_book_shows_no_passage() -> None:
    def says(place: str, prompt: str) -> str:
        assert "T1" not in prompt
        return " Ann Lee "

    rollout = Script(TOKENIZER, says).run(generator(environment="closed-book", form="direct").rollout(QUESTION, 0))
    assert (rollout.main.answer, rollout.main.evidence, rollout.rewards["em"]) == ("Ann Lee", (), 1)


def test_a_judge_is_consulted_about_the_answer() -> None:
    class Judge:
        def verdicts(self, items: list[Any]) -> list[str]:
            assert items == [(QUESTION.text, QUESTION.answers, "Ann Lee")]
            return ["no"]

    rewards = {"accuracy": "judge", "judge": {"url": "http://localhost:1/v1", "model": "m"}}
    rollout = Script(TOKENIZER, lambda place, prompt: WHOLE).run(
        generator(Judge(), rewards=rewards).rollout(QUESTION, 0)
    )
    assert (rollout.rewards["em"], rollout.rewards["accuracy"], rollout.rewards["reward"]) == (1, 0, 2)


SURE = {
    "candidates": "1. Bo Li\n2) Ann Lee\n3. Too Many",
    "summary-0": "Li argues.",
    "summary-1": "Lee argues.",
    "valid-0": "Yes, it does.",
    "valid-1": "yes",
    "better-0-1": "2",
    "better-1-0": "1.",
}


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, "Ann Lee"),  # both valid; the second is preferred in both orders
        ({"better-0-1": "1", "better-1-0": "2"}, "Bo Li"),
        ({"better-0-1": "1"}, "Bo Li"),  # a split verdict is one half each: the first of the best
        ({"valid-1": "No."}, "Bo Li"),  # 1 + 0 against 0 + 1: the first
        ({"valid-0": "no", "better-0-1": "neither"}, "Ann Lee"),
        ({"candidates": "1. Ann Lee\n2. Ann Lee"}, "Ann Lee"),
    ],
)
def test_sure_takes_the_best_supported_candidate(changes: dict[str, str], answer: str) -> None:
    script = Script(TOKENIZER, lambda place, prompt: (SURE | changes)[place])
    rollout = script.run(generator(form="direct", strategy="sure").rollout(QUESTION, 0))
    assert (rollout.main.answer, rollout.outcome) == (answer, "answered")
    assert rollout.rewards["em"] == (answer == "Ann Lee")
    assert len(rollout.others) == (6 if "candidates" not in changes else 2)


def test_sure_without_candidates_has_no_answer() -> None:
    rollout = Script(TOKENIZER, lambda place, prompt: "I cannot say").run(
        generator(form="direct", strategy="sure").rollout(QUESTION, 0)
    )
    assert (rollout.main.answer, rollout.outcome, rollout.malformed_turns) == (None, "iteration_limit", 1)


def test_self_ask_asks_itself_and_answers() -> None:
    said = {
        "turn-0": "Follow-up question : Who made it?",
        "follow-up-0": "Bo",
        "turn-1": "follow-up question: Who is Bo?",
        "follow-up-1": " ",
        "turn-2": "So.\nFinal answer :  Ann Lee ",
    }
    prompts: dict[str, str] = {}

    def says(place: str, prompt: str) -> str:
        prompts[place] = prompt
        return said[place]

    rollout = Script(TOKENIZER, says).run(generator(form="direct", strategy="self_ask").rollout(QUESTION, 0))
    assert (rollout.main.answer, rollout.outcome, rollout.rewards["em"]) == ("Ann Lee", "answered", 1)
    assert [worker.answer for worker in rollout.others] == ["Bo", " "]
    assert "Question : Who made it?" in prompts["follow-up-0"]
    assert "T10" in prompts["follow-up-0"]
    assert "Intermediate answer : Bo" in prompts["turn-1"]
    assert "Intermediate answer : unknown" in prompts["turn-2"]


def test_self_ask_ends_at_its_limit_or_when_it_cannot_be_read() -> None:
    asking = Script(TOKENIZER, lambda place, prompt: "Follow-up question : And?")
    rollout = asking.run(generator(form="direct", strategy="self_ask", follow_ups=2).rollout(QUESTION, 0))
    assert (rollout.outcome, rollout.main.answer, len(rollout.others)) == ("iteration_limit", None, 2)
    mumbling = Script(TOKENIZER, lambda place, prompt: "Ann Lee, I think")
    rollout = mumbling.run(generator(form="direct", strategy="self_ask").rollout(QUESTION, 0))
    assert (rollout.outcome, rollout.main.answer, rollout.malformed_turns) == ("iteration_limit", None, 1)


@pytest.mark.parametrize("said", [" See [2] and [5]. ", "<think>Let me see.</think>\n\nSee [2] and [5]."])
def test_demonstrations_say_what_is_gold(said: str) -> None:
    direct = direct_demonstration(generator(form="direct"), QUESTION)
    assert direct.main.turns[-1].text == "Ann Lee"
    assert direct.rewards["em"] == 1

    own = generator()
    explained = Script(TOKENIZER, lambda place, prompt: said).run(Explainer(**vars(own)).rollout(QUESTION, 0))
    told = explained.main.turns[0].text
    assert told.splitlines()[-2:] == ["Passages to use : [2], [5]", "Answer : Ann Lee"]
    reasoned = reasoned_demonstration(own, explained.question, explained.main.answer)
    assert reasoned is not None
    text = "<relevance>[2,5]</relevance><analysis>See [2] and [5].</analysis><answer>Ann Lee</answer>"
    assert TOKENIZER.decode(reasoned.main.token_ids).endswith(f"<|assistant|>{text}<|end|>")
    assert sum(reasoned.main.agent_mask) == len(text) + 1
    assert reasoned.rewards["reward"] == 13


@pytest.mark.parametrize("said", ["It goes on…cut", "  ", "so <answer>Bo</answer>", None])
def test_unusable_explanation_yields_no_demonstration(said: str | None) -> None:
    own = generator()
    explained = Script(TOKENIZER, lambda place, prompt: said).run(Explainer(**vars(own)).rollout(QUESTION, 0))
    assert reasoned_demonstration(own, explained.question, explained.main.answer) is None
