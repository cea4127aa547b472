"""Order in which training takes up the questions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from platform_sdk.records import Question


def shuffled(questions: Sequence[Question], name: str) -> list[Question]:
    """Return the questions in the random order of this name."""
    order = list(questions)
    random.Random(name).shuffle(order)
    return order


def taken_up(questions: Sequence[Question], number: int, size: int, order: Callable[[int], str]) -> list[Question]:
    """Return the questions of an update or iteration (from 1): the next ``size`` of endless passes through all of them.

    The place follows from the number alone. Where a round reaches into the next pass, a question that it meets again
    is left out.

    Args:
        order: the name of the order of a pass (from 0).
    """
    size = min(size, len(questions))
    orders: dict[int, list[Question]] = {}
    chosen = []
    for place in range((number - 1) * size, number * size):
        turn, index = divmod(place, len(questions))
        if turn not in orders:
            orders[turn] = shuffled(questions, order(turn))
        chosen.append(orders[turn][index])
    return list({question.id: question for question in chosen}.values())
