"""Practice of every agent's base model: copying names and looking facts up; and the worlds that it sees."""

from __future__ import annotations

import random

from platform_sdk.config.world import WorldSpec
from platform_sdk.data.language import POOL, RELATIONS_OF
from platform_sdk.data.world import World, generate


def base_world(seed: int) -> World:
    """One of the small worlds that the documents describe."""
    return generate(WorldSpec(seed=seed, entities=30, train_questions=0, eval_questions=0, split="base"))


def copying(rng: random.Random) -> str:
    """Names in random order, and then again: all of them, or pair by pair in another order."""
    names = rng.sample(POOL, 2 * rng.randint(4, 32))
    if rng.random() < 0.6:
        return " ".join(names + names)
    pairs = list(zip(names[::2], names[1::2], strict=True))
    again = rng.sample(pairs, len(pairs))
    return " ".join(f"{a} {b} ." for a, b in pairs + again)


def reading(world: World, rng: random.Random) -> str:
    """Passages, and then questions about them with their answers."""
    passages = rng.sample(world.passages, rng.randint(2, 5))
    lines = [f"{p.title} : {p.text}" for p in passages]
    asked = []
    for passage in rng.choices(passages, k=rng.randint(3, 6)):
        relation = rng.choice(RELATIONS_OF[world.types[passage.title]])
        target = world.facts[passage.title, relation.noun]
        question = rng.choice(relation.questions).format(x=passage.title)
        asked.append(f"Question : {question} {relation.statement(passage.title, target)}")
    return "\n".join(lines + asked)
