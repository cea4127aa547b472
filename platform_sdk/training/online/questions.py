"""Order of the training questions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
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


def questions_of(spec: OnlineSpec, questions: Sequence[Question], update: int, seed: int) -> list[Question]:
    """Return the questions of an update followed by its possible replacements, which are otherwise skipped."""
    size = spec.questions * (1 + spec.refills)
    return taken_up(questions, update, size, lambda turn: f"online pass {turn} of seed {seed}")


def check_mini_batches(spec: OnlineSpec, questions: Sequence[Question], seed: int) -> None:
    """Check that no update has fewer questions than mini-batches.

    Raises:
        UserError: an update has too few, since there are few questions or some repeat within the update.
    """
    if 2 * spec.mini_batches <= min(spec.questions, len(questions)):
        return  # at most half of an update's questions repeat
    for update in range(1, spec.updates + 1):
        count = min(spec.questions, len(questions_of(spec, questions, update, seed)))
        if count < spec.mini_batches:
            raise UserError(
                f"online.mini_batches is {spec.mini_batches}, but update {update} has only {count} different questions "
                f"of the {len(questions)} training questions; lower online.mini_batches, or give more questions"
            )
