"""Order of the training questions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from platform_sdk.records import Question


def shuffled(questions: Sequence[Question], name: str) -> list[Question]:
    """Return the questions in a random order seeded by ``name``."""
    order = list(questions)
    random.Random(name).shuffle(order)
    return order


def taken_up(questions: Sequence[Question], number: int, size: int, order: Callable[[int], str]) -> list[Question]:
    """Return the questions of an update or iteration (from 1): the next ``size`` of endless passes through all of them.

    The position depends only on the number. If an update extends into the next pass, a repeated question is left out.

    Args:
        order: returns the name that seeds the order of a pass (from 0).
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
