"""Recall: the share of gold evidence that a retriever returns for the questions' texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.intervals import PairedDifference, bootstrap_interval, paired_bootstrap
from platform_sdk.records import Evidence, Question
from platform_sdk.retrieval.retriever import Retriever
from platform_sdk.sampling.rollout import SearchRequest

BATCH = 256


@dataclass(frozen=True)
class Recall:
    """Recall at each k of every question with gold evidence, by question id.

    ``without_gold`` is the number of questions without gold evidence, which are not counted.
    """

    without_gold: int
    scores: dict[int, dict[str, float]]

    @property
    def n(self) -> int:
        """Number of counted questions."""
        return len(next(iter(self.scores.values())))

    @property
    def at(self) -> dict[int, float]:
        """Mean recall at each k."""
        return {k: sum(scores.values()) / len(scores) for k, scores in self.scores.items()}

    @property
    def intervals(self) -> dict[int, tuple[float, float]]:
        """The 95 % bootstrap interval of each mean."""
        return {k: bootstrap_interval(list(scores.values())) for k, scores in self.scores.items()}

    def compare(self, other: Recall) -> dict[int, PairedDifference]:
        """Return the difference in recall to ``other`` on the same questions, at each k.

        Raises:
            UserError: the other counts different questions.
        """
        if any(self.scores[k].keys() != other.scores[k].keys() for k in self.scores):
            raise UserError(
                "the methods count different questions, since their gold evidence differs (triples, passages); compare "
                "methods of one kind"
            )
        return {
            k: paired_bootstrap(list(scores.values()), [other.scores[k][id] for id in scores])
            for k, scores in self.scores.items()
        }


def measure_recall(
    retriever: Retriever, scope: Sequence[str], questions: Sequence[Question], ks: Sequence[int]
) -> Recall:
    """Search each question's text and compare with its gold evidence.

    Recall is the share of gold triples (by text) among the first k for a retriever of triples, else of gold passages
    (by title). If a search starts from an entity, each head of a gold triple is searched, and its gold triples must be
    among the first k results.

    Args:
        scope: the scope of the retriever's method; only ``head`` and ``question_id`` are supported.

    Raises:
        UserError: a k is below 1, no question has gold evidence, or the scope needs something else.
        InvalidRequest, RetrieverFault: see ``Retriever.search``.
    """
    if not ks or min(ks) < 1:
        raise UserError("give at least one k, each 1 or more")
    if unknown := set(scope) - {"head", "question_id"}:
        raise UserError(
            f"recall cannot be measured: the retrieval method needs {min(unknown)} in every search, which a question "
            "does not give; choose another method"
        )
    visits = "head" in scope
    known = [pair for question in questions for triples in (True, visits) for pair in _gold(question, scope, triples)]
    requests = list(dict.fromkeys(request for request, _ in known))
    found: dict[SearchRequest, list[Evidence]] = {}
    for start in range(0, len(requests), BATCH):
        part = requests[start : start + BATCH]
        found |= zip(part, retriever.search(part, max(ks)), strict=True)
    triples = visits or any(evidence.kind == "triple" for hits in found.values() for evidence in hits)
    scores: dict[int, dict[str, float]] = {k: {} for k in ks}
    for question in questions:
        gold = _gold(question, scope, triples)
        names = [[hit.text if triples else hit.title for hit in found[request]] for request, _ in gold]
        for k in ks if gold else ():
            hits = sum(name in own[:k] for (_, name), own in zip(gold, names, strict=True))
            scores[k][question.id] = hits / len(gold)
    if not scores[ks[0]]:
        raise UserError(
            f"none of the {len(questions)} evaluation questions names gold evidence, so recall cannot be measured"
        )
    return Recall(len(questions) - len(scores[ks[0]]), scores)


def _gold(question: Question, scope: Sequence[str], triples: bool) -> list[tuple[SearchRequest, str]]:
    """Return distinct gold triples by text, or gold passages by title, each with the search for it."""
    named = [("", "", title) for title in question.gold_passages]
    if triples:
        named = [(triple.head_id, triple.head, triple.text) for triple in question.gold_triples]
    found = []
    for id, head, name in dict.fromkeys(named):
        values = {"head": id or head, "question_id": question.id}
        # Like an agent's request: a graph may have the entity's name but not its id.
        by_name = {"head_name": head} if id and "head" in scope else {}
        found.append((SearchRequest(question.text, {key: values[key] for key in scope} | by_name), name))
    return found
