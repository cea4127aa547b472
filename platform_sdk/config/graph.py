"""Settings of a recipe's knowledge hypergraph: how facts are extracted, and in how many shards."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from platform_sdk.config.sampling import EngineSpec
from platform_sdk.config.struct import Struct


class GraphSpec(Struct):
    """Settings of building a graph from a corpus."""

    extractor: Literal["rules", "triples", "llm"] = Field(
        "rules", description="rules: sentences, without a model; triples: the dataset's triples; llm: a language model."
    )
    model: str | None = Field(None, min_length=1, description="llm: the model, as a path, hub name or package:NAME.")
    engine: EngineSpec = Field(EngineSpec(), description="llm: the sampling engine.")
    chunk_tokens: int = Field(
        1200,
        ge=16,
        le=1_000_000,
        description="Maximum length of a chunk in words and punctuation marks (no tokenizer needed).",
    )
    overlap_tokens: int = Field(100, ge=0, description="Maximum overlap of consecutive chunks, in the same unit.")
    passes: int = Field(2, ge=0, le=10, description="llm: number of further prompts for missed facts.")
    max_tokens: int = Field(2048, ge=1, le=1_000_000, description="llm: maximum tokens of one answer.")
    shards: int = Field(
        1,
        ge=1,
        le=100_000,
        description="Parts of the extraction: on a cluster, pods of one job. Another number gives the same graph, but "
        "extracts every chunk again.",
    )
    memory_gb: float = Field(
        2.0, gt=0, description="Maximum memory of the merge, in GB; larger merges spill to files next to the graph."
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.extractor == "llm") != (self.model is not None):
            raise ValueError("model is needed for the extractor llm, and only for it")
        if self.extractor == "llm" and self.engine.brings_server:
            raise ValueError("engine.url is missing: extraction starts no server, so give the URL of a running one")
        if self.overlap_tokens >= self.chunk_tokens:
            raise ValueError("overlap_tokens must be smaller than chunk_tokens")
        return self
