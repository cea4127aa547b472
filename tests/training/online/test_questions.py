from __future__ import annotations

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.training.online.questions import check_mini_batches, taken_up
from tests.training.online.lucky import question

QUESTIONS = [question(number) for number in range(7)]


def taken(update: int, size: int = 3, seed: int = 0) -> list[str]:
    return [one.id for one in taken_up(QUESTIONS, update, size, lambda turn: f"pass {turn} {seed}")]


def test_every_pass_takes_every_question_once_in_an_order_of_its_own() -> None:
    row = [id for update in range(1, 8) for id in taken(update, size=1)]
    again = [id for update in range(8, 15) for id in taken(update, size=1)]
    assert sorted(row) == sorted(again) == [question.id for question in QUESTIONS]
    assert row != again


def test_questions_of_an_update_do_not_depend_on_earlier_calls() -> None:
    row = [id for update in range(1, 15) for id in taken(update, size=1)]
    assert taken(2) == row[3:6]
    assert taken(3) == list(dict.fromkeys(row[6:9])), "it reaches into the next pass"
    assert taken(1, seed=1) != taken(1) == row[:3]


def test_no_question_is_met_twice_in_one_update() -> None:
    for update in range(1, 20):
        assert len(set(taken(update, size=5))) == len(taken(update, size=5)) <= 5
    assert sorted(taken(4, size=100)) == [question.id for question in QUESTIONS]


def test_update_with_fewer_questions_than_mini_batches_is_refused() -> None:
    """The second update reaches into the next pass, where some of its questions repeat."""
    check_mini_batches(OnlineSpec(updates=1, questions=5, mini_batches=5), QUESTIONS, 0)
    with pytest.raises(UserError, match=r"mini_batches is 5, but update 2 has only 4 different questions of the 7"):
        check_mini_batches(OnlineSpec(updates=9, questions=5, mini_batches=5), QUESTIONS, 0)
    with pytest.raises(UserError, match="update 1 has only 7 different questions"):
        check_mini_batches(OnlineSpec(updates=1, questions=9, mini_batches=8), QUESTIONS, 0)
    check_mini_batches(OnlineSpec(updates=9, questions=5, mini_batches=2), QUESTIONS, 0)
