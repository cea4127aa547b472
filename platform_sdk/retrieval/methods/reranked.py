"""Passages that another method finds, ordered by a cross-encoder, which reads query and passage together.

The cross-encoder is any model that sentence-transformers loads as one. It reads ``candidates`` passages for each query,
so a search costs as much as the model needs for them. If more results are requested, the other passages follow in the
base method's order and with its scores. The passages of one query are one batch, so results do not depend on other
queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.records import Evidence
from platform_sdk.retrieval.encoders import first_line
from platform_sdk.retrieval.method import Index, Material, RetrievalMethod, load_method
from platform_sdk.sampling.rollout import SearchRequest

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

SCORE_DIGITS = 4


class RerankedSettings(Struct):
    """Settings of the order by a cross-encoder."""

    model: str = Field(
        "cross-encoder/ms-marco-MiniLM-L6-v2",
        min_length=1,
        description="A sentence-transformers cross-encoder: a directory, or a name on the Hugging Face hub.",
    )
    base: Literal["passages", "lexical", "linked"] = Field("linked", description="Method that finds the candidates.")
    candidates: int = Field(20, ge=1, le=1000, description="Passages that the cross-encoder reads for each query.")
    batch_size: int = Field(32, ge=1, le=65_536, description="Passages per call of the cross-encoder.")
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="Device of the cross-encoder.")


@dataclass(frozen=True)
class RerankedMaterial(Material):
    """The base method's material, and the cross-encoder."""

    base: Material
    model: str
    device: str

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Return the base method's texts."""
        return self.base.texts()

    def warm(self) -> None:
        """Build the base method's tables, and load the cross-encoder."""
        self.base.warm()
        assert self.cross_encoder is not None

    @cached_property
    def cross_encoder(self) -> CrossEncoder:
        """The model, loaded on first use.

        Raises:
            UserError: the model cannot be loaded, or gives more than one score.
        """
        from sentence_transformers import CrossEncoder

        where = f"retrieval.settings.model {self.model}"
        try:
            loaded = CrossEncoder(self.model, device=None if self.device == "auto" else self.device)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{where}: cannot be loaded ({first_line(error)}); give the directory of a cross-encoder, or "
                "a hub name that is reachable"
            ) from error
        except (AssertionError, RuntimeError) as error:  # torch without CUDA raises an AssertionError
            raise UserError(
                f"{where}: cannot be loaded on device {self.device} ({first_line(error)}); set "
                "retrieval.settings.device to cpu, or to a device with enough free memory"
            ) from error
        if loaded.num_labels != 1:
            raise UserError(f"{where}: gives {loaded.num_labels} scores; give a cross-encoder with one score")
        return loaded


class Reranked(RetrievalMethod[RerankedMaterial, RerankedSettings]):
    """Search by another method, and order its results by a cross-encoder."""

    settings = RerankedSettings

    def load(self, run_dir: Path, settings: RerankedSettings) -> RerankedMaterial:
        base = load_method(settings.base)
        material: Material = base.load(run_dir, base.settings())
        return RerankedMaterial(material.digest, material, settings.model, settings.device)

    def find(
        self, index: Index[RerankedMaterial, RerankedSettings], requests: Sequence[SearchRequest], queries: np.ndarray,
        k: int,
    ) -> list[list[Evidence]]:  # fmt: skip
        settings, base = index.settings, load_method(index.settings.base)
        inner = Index(index.material.base, base.settings(), index.encoder, index.vectors)
        results = []
        for request, hits in zip(
            requests, base.find(inner, requests, queries, max(k, settings.candidates)), strict=True
        ):
            read, rest = hits[: settings.candidates], hits[settings.candidates :]
            pairs = [(request.query, f"{hit.title}\n{hit.text}") for hit in read]
            scores = (
                index.material.cross_encoder.predict(pairs, batch_size=settings.batch_size, show_progress_bar=False)
                if pairs
                else []
            )
            ranked = [
                hit.model_copy(update={"score": round(float(score), SCORE_DIGITS), "parts": {settings.base: hit.score}})
                for hit, score in zip(read, scores, strict=True)
            ]
            results.append([*sorted(ranked, key=lambda hit: (-hit.score, hit.id)), *rest][:k])
        return results


METHOD = Reranked()
