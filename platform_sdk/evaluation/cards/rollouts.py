"""Card of sampled rollouts: counts, and a few shortened dialogues."""

from __future__ import annotations

from collections.abc import Iterable

from platform_sdk.evaluation.cards.figures import amount
from platform_sdk.evaluation.cards.markdown import card, number, plain, table
from platform_sdk.records import Rollout

DIALOGUES = 2
TURNS = 6
LONGEST_TURN = 140


def rollouts_card(phase: str, rollouts: Iterable[Rollout]) -> str:
    """Return the counts of a phase's rollouts, and the first dialogues with a right and with a wrong answer.

    Args:
        phase: The phase that sampled them.
        rollouts: The rollouts in order, iterated over once.
    """
    questions: set[str] = set()
    examples: dict[bool, Rollout] = {}
    count = answered = right = well_formed = 0
    for rollout in rollouts:
        count += 1
        questions.add(rollout.question.id)
        answered += rollout.outcome == "answered"
        well_formed += rollout.malformed_turns == 0
        correct = rollout.rewards.get("em", 0.0) > 0
        right += correct
        examples.setdefault(correct, rollout)
    if not count:
        return card(f"Rollouts: {phase}", "Nothing was sampled.")
    rows = [["rollouts", number(count), ""], ["questions", number(len(questions)), ""]]
    rows += [
        [name, number(part), f"{amount(part / count)} %"]
        for name, part in (("answered", answered), ("exactly right", right), ("well formed", well_formed))
    ]
    shown = [_dialogue(examples[correct], correct) for correct in (True, False) if correct in examples][:DIALOGUES]
    sentence = "Attempts at the questions, and examples of dialogues."
    return card(f"Rollouts: {phase}", sentence, table(["figure", "count", "share"], rows, numbers=2), *shown)


def _dialogue(rollout: Rollout, correct: bool) -> str:
    turns = rollout.main.turns
    lines = [f"- {turn.speaker}: {plain(turn.text, LONGEST_TURN)}" for turn in turns[:TURNS]]
    if len(turns) > TURNS:
        lines.append(f"- … {len(turns) - TURNS} more turns")
    gold = "" if correct else f" Expected: {plain(rollout.question.answers[0], 60)}."
    verdict = "Right" if correct else "Wrong"
    answer = plain(rollout.main.answer or "none", 60)
    return "\n".join([f"**{verdict}:** {plain(rollout.question.text)} Answer: {answer}.{gold}", "", *lines])
