"""Passages given with the question, by similarity to the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import SCOPES
from platform_sdk.data.dataset import read_corpus
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Evidence, Question
from platform_sdk.retrieval.method import Index, NoSettings, RetrievalMethod
from platform_sdk.retrieval.methods.passages import PassageMaterial
from platform_sdk.run_dir import RunDir
from platform_sdk.sampling.rollout import SearchRequest


@dataclass(frozen=True)
class ContextMaterial(PassageMaterial):
    """The passages of a corpus, and the rows of each question."""

    by_question: Mapping[str, Sequence[int]]


class Contexts(RetrievalMethod[ContextMaterial, NoSettings]):
    """Search the question's own passages."""

    settings = NoSettings
    scope = SCOPES["contexts"]

    def load(self, run_dir: Path, settings: NoSettings) -> ContextMaterial:
        corpus = read_corpus(run_dir)
        rows = {(passage.title, passage.text): row for row, passage in enumerate(corpus.passages)}
        files = [RunDir(run_dir).questions(part) for part in ("train", "eval")]
        by_question: dict[str, list[int]] = {}
        for question in (question for file in files if file.exists() for question in read_jsonl(file, Question)):
            own = {(passage.title, passage.text) for passage in question.context}
            if not own <= rows.keys():
                raise UserError(
                    f"question {question.id} has passages that are not in the corpus; leave dataset.corpus out, "
                    "so that the corpus is made of the questions' own passages"
                )
            if own:
                listed = sorted(rows[passage] for passage in own)
                if by_question.setdefault(question.id, listed) != listed:
                    raise UserError(
                        f"question {question.id} is in dataset.train and in dataset.eval with different passages; "
                        "give each question its own id"
                    )
        return ContextMaterial(corpus.digest, corpus.passages, by_question)

    def refusal(self, material: ContextMaterial, request: SearchRequest) -> str | None:
        known = request.scope["question_id"] in material.by_question
        return None if known else f"question {request.scope['question_id']!r} (question_id) has no passages"

    def find(
        self, index: Index[ContextMaterial, NoSettings], requests: Sequence[SearchRequest], queries: np.ndarray, k: int
    ) -> list[list[Evidence]]:
        rows = [index.material.by_question[request.scope["question_id"]] for request in requests]
        hits = index.vectors["passages"].nearest_among(queries, rows, k)
        return [[index.material.evidence(*hit) for hit in own] for own in hits]


METHOD = Contexts()
