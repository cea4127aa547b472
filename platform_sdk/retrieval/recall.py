"""How much of the gold evidence a retriever finds when it is asked the questions themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.intervals import bootstrap_interval
from platform_sdk.evaluation.recall import recall_at_k
from platform_sdk.records import Question
from platform_sdk.retrieval.index import Form
from platform_sdk.retrieval.search import Retriever
from platform_sdk.sampling.rollout import SearchRequest

BATCH = 256


@dataclass(frozen=True)
class Recall:
    """Mean recall at each k with its 95 % bootstrap interval, over ``n`` questions.

    ``without_gold`` questions name no gold evidence and could not be counted.
    """

    n: int
    without_gold: int
    at: dict[int, float]
    intervals: dict[int, tuple[float, float]]


def measure_recall(retriever: Retriever, form: Form, questions: Sequence[Question], ks: Sequence[int]) -> Recall:
    """Search each question's text and compare with its gold evidence.

    In text that is the share of gold passages (by title) among the first k. In a graph every head of a
    gold triple is visited, and it is the share of gold triples among the first k of their heads.

    Raises:
        UserError: a k is below 1, or no question has gold evidence.
        RetrieverFault: see ``Retriever.search``.
    """
    if not ks or min(ks) < 1:
        raise UserError("give at least one k, each 1 or more")
    counted = [
        question for question in questions if (question.gold_triples if form == "triples" else question.gold_passages)
    ]
    if not counted:
        raise UserError(
            f"none of the {len(questions)} evaluation questions names gold evidence, so recall cannot be measured"
        )
    measure = _of_triples if form == "triples" else _of_passages
    values = [
        row for start in range(0, len(counted), BATCH) for row in measure(retriever, counted[start : start + BATCH], ks)
    ]
    columns = {k: [row[place] for row in values] for place, k in enumerate(ks)}
    return Recall(
        n=len(counted),
        without_gold=len(questions) - len(counted),
        at={k: sum(column) / len(column) for k, column in columns.items()},
        intervals={k: bootstrap_interval(column) for k, column in columns.items()},
    )


def _of_passages(retriever: Retriever, questions: Sequence[Question], ks: Sequence[int]) -> list[list[float]]:
    requests = [SearchRequest(question.text, question_id=question.id) for question in questions]
    found = retriever.search(requests, max(ks))
    return [
        [recall_at_k([evidence.title for evidence in hits], question.gold_passages, k) for k in ks]
        for question, hits in zip(questions, found, strict=True)
    ]


def _of_triples(retriever: Retriever, questions: Sequence[Question], ks: Sequence[int]) -> list[list[float]]:
    requests = [
        SearchRequest(question.text, head=head)
        for question in questions
        for head in dict.fromkeys(triple.head for triple in question.gold_triples)
    ]
    found = dict(zip(requests, retriever.search(requests, max(ks)), strict=True))
    rows = []
    for question in questions:
        gold = dict.fromkeys((triple.head, triple.text) for triple in question.gold_triples)
        places = [[evidence.text for evidence in found[SearchRequest(question.text, head=head)]] for head, _ in gold]
        rows.append(
            [sum(text in texts[:k] for (_, text), texts in zip(gold, places, strict=True)) / len(gold) for k in ks]
        )
    return rows
