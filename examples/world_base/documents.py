"""The documents that the base model learns from: copying, reading, and dialogues of an agent that errs.

An unending stream from a seed. The agent's decisions are drawn from ``Noise``: it often stops before the
last hop, asks for the wrong relation or reads the wrong line, so that a base model answers some questions and
fails at most, and training has something to select.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from examples.world_base.practice import base_world, copying, reading
from platform_sdk.agents.planner_messages import Medium, error_observation, observation, planner_opening, worker_opening
from platform_sdk.data.language import COMPARISONS, RELATION, RELATIONS_OF, Relation
from platform_sdk.data.world import Chain, World, phrase_chain, random_chain
from platform_sdk.methods.mygo.grammar import NOTHING_FOUND
from platform_sdk.methods.mygo.prompts import Message, role_prompt
from platform_sdk.records import Evidence

Document = str | list[Message]
CONTEXT_PASSAGES = 3


@dataclass(frozen=True)
class Noise:
    """Rates of the simulated agent's decisions, in their order.

    Each group sums to less than 1; the rest is the malformed turn; of reading, half of the rest reads rightly.
    """

    ask_first: float  # the right sub-question, when nothing is known yet
    ask_first_wrong: float  # … a sub-question about another relation
    ask_next: float  # the right next sub-question, when the chain is not at its end
    stop_early: float  # … an answer, though hops are missing
    ask_next_wrong: float
    stop: float  # the right answer, when the last hop is known
    stop_wrong: float  # … some other entity
    ask_more: float
    read: float  # the right line and sentence
    read_beside: float  # … another fact of the right passage
    read_first: float  # … a fact of the first passage


ERRS_OFTEN = Noise(0.72, 0.20, 0.34, 0.48, 0.13, 0.70, 0.08, 0.17, 0.62, 0.22, 0.12)
ERRS_LESS = Noise(0.85, 0.10, 0.48, 0.40, 0.07, 0.80, 0.05, 0.10, 0.82, 0.10, 0.05)
ERRS_SOMETIMES = Noise(0.90, 0.06, 0.62, 0.28, 0.05, 0.84, 0.05, 0.07, 0.86, 0.09, 0.03)

MALFORMED = (
    ("<think>I know enough .", "begin with <think>…</think>"),
    ("<think>I know enough .</think>", "an action must follow </think>"),
    ("<answer>yes</answer>", "begin with <think>…</think>"),
)


class Documents:
    """An endless iterator of documents, equal for equal seeds.

    It begins with ``copying`` documents of copying alone, which is what everything else builds on.
    """

    def __init__(self, seed: int, noise: Noise = ERRS_OFTEN, copying: int = 0) -> None:
        self._rng = random.Random(f"documents {seed}")
        self._noise = noise
        self._copying_first = copying

    def __iter__(self) -> Iterator[Document]:
        for _ in range(self._copying_first):
            yield copying(self._rng)
        while True:
            world = base_world(self._rng.randrange(2**60))
            for _ in range(8):
                yield self._document(world)

    def _document(self, world: World) -> Document:
        draw = self._rng.random()
        if draw < 0.18:
            return copying(self._rng)
        if draw < 0.42:
            return reading(world, self._rng)
        medium: Medium = "text" if self._rng.random() < 0.65 else "kg"
        return self._planner(world, medium) if draw < 0.71 else self._worker(world, medium)

    def _system(self, role: str, medium: Medium) -> Message:
        prompt = role_prompt("compact", role, medium, max_questions=5)
        return {"role": "system", "content": prompt.system(demonstrate=self._rng.random() < 0.4)}

    # The worker -------------------------------------------------------------------------------------------------

    def _worker(self, world: World, medium: Medium) -> list[Message]:
        rng = self._rng
        subject = rng.choice(list(world.types))
        relation = rng.choice(RELATIONS_OF[world.types[subject]])
        question = rng.choice(relation.questions).format(x=subject)
        evidence = self._passages(world, subject) if medium == "text" else self._triples(world, subject)
        opening = {"role": "user", "content": worker_opening(question, evidence, medium)}
        reply = {"role": "assistant", "content": self._read(world, medium, subject, relation, evidence)}
        return [self._system("worker", medium), opening, reply]

    def _passages(self, world: World, subject: str) -> list[Evidence]:
        """Return what a retriever would find: mostly the subject's passage first, seldom not at all."""
        rng = self._rng
        place = rng.choices((0, 1, 2, None), (0.74, 0.13, 0.07, 0.06))[0]
        near = [p for p in world.passages if p.title != subject and subject in p.text]
        others = [p for p in world.passages if p.title != subject]
        found = [rng.choice(near if near and rng.random() < 0.6 else others) for _ in range(CONTEXT_PASSAGES)]
        found = list({p.id: p for p in found}.values())
        if place is not None:
            found.insert(place, next(p for p in world.passages if p.title == subject))
        return [
            Evidence(kind="passage", id=p.id, title=p.title, text=p.text, score=0.0) for p in found[:CONTEXT_PASSAGES]
        ]

    def _triples(self, world: World, subject: str) -> list[Evidence]:
        triples = [t for t in world.triples if t.head == subject]
        self._rng.shuffle(triples)
        return [Evidence(kind="triple", id=t.text, text=t.text, score=0.0) for t in triples]

    def _read(self, world: World, medium: Medium, subject: str, relation: Relation, evidence: list[Evidence]) -> str:
        rng, noise = self._rng, self._noise
        draw = rng.random()
        if draw < noise.read:
            pass
        elif draw < noise.read + noise.read_beside:
            relation = rng.choice(RELATIONS_OF[world.types[subject]])
        elif draw < noise.read + noise.read_beside + noise.read_first and medium == "text":
            subject = evidence[0].title
            relation = rng.choice(RELATIONS_OF[world.types[subject]])
        elif draw > 1 - (1 - noise.read - noise.read_beside - noise.read_first) / 2:
            return rng.choice(MALFORMED)[0]
        target = world.facts[subject, relation.noun]
        where = [
            i
            for i, item in enumerate(evidence)
            if (item.title == subject if medium == "text" else item.text == f"{subject}, {relation.noun}, {target}")
        ]
        if not where:
            thought = f"The {relation.noun} of {subject} is not here ."
            if medium == "kg":
                return f"<think>{thought}</think><sentence>{NOTHING_FOUND}</sentence>"
            return f"<think>{thought}</think><select>[-1]</select><sentence>I do not know it .</sentence>"
        thought = f"The {relation.noun} of {subject} stands in [{where[0]}] ."
        statement = relation.statement(subject, target)
        return f"<think>{thought}</think><select>[{where[0]}]</select><sentence>{statement}</sentence>"

    # The planner ------------------------------------------------------------------------------------------------

    def _planner(self, world: World, medium: Medium) -> list[Message]:
        rng = self._rng
        if rng.random() < 0.12:
            return self._comparison(world, medium)
        chain = None
        while chain is None:
            chain = random_chain(rng.choice(list(world.types)), rng.randint(1, 4), world.types, world.facts, rng)
        candidates = [chain.entities[0]]
        messages = [self._system("planner", medium)]
        messages.append({"role": "user", "content": planner_opening(phrase_chain(chain, rng), candidates, medium)})
        self._follow(world, medium, chain, candidates, messages)
        return messages

    def _follow(
        self, world: World, medium: Medium, chain: Chain, candidates: list[str], messages: list[Message]
    ) -> None:
        """Walk along the chain, with errors, until an answer or the iteration limit."""
        rng, noise = self._rng, self._noise
        known = 0  # how many hops have been found out
        for turn in range(8):
            here, last = chain.entities[known], known == len(chain.relations)
            if turn == 0:
                choice = self._choose((noise.ask_first, "ask"), (noise.ask_first_wrong, "other"))
            elif last:
                choice = self._choose((noise.stop, "stop"), (noise.stop_wrong, "stray"), (noise.ask_more, "other"))
            else:
                choice = self._choose(
                    (noise.ask_next, "ask"), (noise.stop_early, "stop"), (noise.ask_next_wrong, "other")
                )
            if choice in ("stop", "stray"):
                answer = here if choice == "stop" else rng.choice(candidates)
                messages.append(_said(f"<think>I know enough .</think><answer>{answer}</answer>"))
                return
            if choice == "malformed":
                text, reason = rng.choice(MALFORMED)
                messages += [_said(text), _told(error_observation(reason))]
                continue
            right = choice == "ask"
            relation = chain.relations[known] if right else rng.choice(RELATIONS_OF[world.types[here]])
            right = not last and relation is chain.relations[known]
            thought = (
                f"I do not know the {relation.noun} yet ."
                if turn == 0
                else f"Next I need the {relation.noun} of {here} ."
            )
            question = rng.choice(relation.questions).format(x=here)
            messages.append(_said(f"<think>{thought}</think>" + self._action(medium, [(question, here)], candidates)))
            sentence, found = self._report(world, medium, here, relation)
            if right and found == chain.entities[known + 1]:
                known += 1
            new = [found] if found and found not in candidates else []
            first = len(candidates)
            candidates += new
            messages.append(_told(observation([sentence], new if medium == "kg" else (), first)))

    def _comparison(self, world: World, medium: Medium) -> list[Message]:
        rng = self._rng
        relation = RELATION[rng.choice(list(COMPARISONS))]
        subjects = [name for name, kind in world.types.items() if kind == relation.subject]
        a, b = rng.sample(subjects, 2)
        if rng.random() < 0.4:  # small worlds agree often enough by themselves; this balances yes and no
            value = world.facts[a, relation.noun]
            b = rng.choice([n for n in subjects if n != a and world.facts[n, relation.noun] == value] or [b])
        question = rng.choice(COMPARISONS[relation.noun]).format(a=a, b=b)
        asked = rng.choice(relation.questions)
        pairs = [(asked.format(x=x), x) for x in (a, b)]
        thought = f"<think>I do not know the {relation.noun} yet .</think>"
        reports = [
            (relation.statement(x, world.facts[x, relation.noun]), world.facts[x, relation.noun]) for x in (a, b)
        ]
        new = list(dict.fromkeys(found for _, found in reports))
        answer = "yes" if reports[0][1] == reports[1][1] else "no"
        if rng.random() > self._noise.stop:
            answer = rng.choice(("yes", "no", reports[0][1]))
        return [
            self._system("planner", medium),
            _told(planner_opening(question, [a, b], medium)),
            _said(thought + self._action(medium, pairs, [a, b])),
            _told(observation([sentence for sentence, _ in reports], new if medium == "kg" else (), 2)),
            _said(f"<think>I know enough .</think><answer>{answer}</answer>"),
        ]

    def _action(self, medium: Medium, asked: list[tuple[str, str]], candidates: list[str]) -> str:
        if medium == "text":
            return "".join(f"<search>{question}</search>" for question, _ in asked)
        searches = " ".join(f'Search([{candidates.index(x)}], "{question}")' for question, x in asked)
        return f"<action>{searches}</action>"

    def _report(self, world: World, medium: Medium, subject: str, relation: Relation) -> tuple[str, str | None]:
        """Return the report of a worker no better than this agent, and the entity it names."""
        draw, noise = self._rng.random(), self._noise
        if draw > noise.read + noise.read_beside + noise.read_first:
            return (NOTHING_FOUND if medium == "kg" else "I do not know it ."), None
        if draw > noise.read + noise.read_beside:
            subject = self._rng.choice(list(world.types))
        if draw > noise.read:
            relation = self._rng.choice(RELATIONS_OF[world.types[subject]])
        target = world.facts[subject, relation.noun]
        return relation.statement(subject, target), target

    def _choose(self, *options: tuple[float, str]) -> str:
        draw = self._rng.random()
        for share, choice in options:
            if draw < share:
                return choice
            draw -= share
        return "malformed"


def _said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _told(text: str) -> Message:
    return {"role": "user", "content": text}


def render(document: Document, template: Callable[[list[Message]], str]) -> str:
    """A document as one text; dialogues through the tokenizer's chat template."""
    return document if isinstance(document, str) else template(document)
