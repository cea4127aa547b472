"""Settings of the prompting baselines in a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from platform_sdk.config.retrieval import Searched
from platform_sdk.config.source import Fault
from platform_sdk.config.struct import Struct

Strategy = Literal["closed_book", "chain_of_thought", "retrieve_read", "ircot"]
SEARCHING: frozenset[Strategy] = frozenset({"retrieve_read", "ircot"})
"""Strategies that search; the others answer from the model's memory."""


class AgentSpec(Struct):
    """The strategy and its limits."""

    strategy: Strategy = Field(
        description="closed_book: the answer alone; chain_of_thought: reasoning, then the answer; retrieve_read: one "
        "search with the question, then the answer from the passages (plain RAG); ircot: a search after each sentence "
        "of reasoning, then a chain of thought over all passages (Trivedi et al., 2023)"
    )
    top_k: int = Field(5, ge=1, le=10_000, description="passages of each search")
    max_tokens: int = Field(256, ge=1, le=1_000_000, description="maximum tokens of the answering reply")
    max_steps: int = Field(8, ge=1, le=1000, description="ircot: maximum number of sentences of reasoning")
    step_tokens: int = Field(64, ge=1, le=1_000_000, description="ircot: maximum tokens of a sentence of reasoning")
    max_passages: int = Field(15, ge=1, le=10_000, description="ircot: passages kept of all searches")
    demonstrate: bool = Field(False, description="show a worked example before the question, for small models")

    def misfit(self, environment: str, searched: Searched) -> Fault | None:
        """Return the fault if the strategy does not fit the retrieval method, else None."""
        if (self.strategy in SEARCHING) == (searched.method == "none"):
            return Fault(
                ("agent", "strategy"),
                f"{self.strategy}: searches, but retrieval.method none has nothing to search; choose another method"
                if self.strategy in SEARCHING
                else f"{self.strategy}: never searches; set retrieval.method to none",
            )
        return searched.scope_fault(f"the strategy {self.strategy}")
