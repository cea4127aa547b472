"""Which questions an update takes up."""

from __future__ import annotations

import random
from collections.abc import Sequence

from platform_sdk.records import Question


def questions_of(questions: Sequence[Question], update: int, size: int, seed: int) -> list[Question]:
    """The questions of an update (from 1): the next ``size`` of an endless row of passes through all of them.

    Every pass has an order of its own, drawn from the seed: the place in the row follows from the update alone. Where
    an update reaches into the next pass, a question that it meets again is left out.
    """
    size = min(size, len(questions))
    first = (update - 1) * size
    orders: dict[int, list[int]] = {}
    chosen = []
    for place in range(first, first + size):
        turn, index = divmod(place, len(questions))
        if turn not in orders:
            orders[turn] = list(range(len(questions)))
            random.Random(f"online pass {turn} of seed {seed}").shuffle(orders[turn])
        chosen.append(orders[turn][index])
    return [questions[index] for index in dict.fromkeys(chosen)]
