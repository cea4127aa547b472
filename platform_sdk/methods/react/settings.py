"""Settings of ReAct in a recipe."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from platform_sdk.config.retrieval import Searched
from platform_sdk.config.source import Fault
from platform_sdk.config.struct import Struct
from platform_sdk.config.tools import SearchToolSpec, ToolSpec, check_names


class AgentSpec(Struct):
    """The agent's tools and limits."""

    tools: tuple[ToolSpec, ...] = Field(
        (SearchToolSpec(type="search"),), min_length=1, max_length=64, description="the tools that the agent may call"
    )
    max_turns: int = Field(8, ge=1, le=1000, description="maximum number of turns, malformed ones included")
    max_tokens: int = Field(256, ge=1, le=1_000_000, description="maximum number of tokens of a turn")
    prompts: Literal["standard", "compact", "search_r1"] = Field(
        "standard",
        description="compact: for very small models; search_r1: the format of Search-R1 (Jin et al., 2025, arXiv "
        "2503.09516), whose only tool is search",
    )

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Return the names of a rollout's rewards, for the settings that name one."""
        return ("em", "f1", "well_formed")

    @field_validator("tools")
    @classmethod
    def _names_differ(cls, value: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        check_names(value)
        return value

    @model_validator(mode="after")
    def _search_r1_only_searches(self) -> Self:
        if self.prompts == "search_r1" and [tool.type for tool in self.tools] != ["search"]:
            raise ValueError("prompts search_r1 has the tool search and no other; remove the others, or set prompts")
        return self

    def misfit(self, environment: str, searched: Searched) -> Fault | None:
        """Return the fault if the tools do not fit the retrieval method, else None."""
        searches = any(isinstance(spec, SearchToolSpec) for spec in self.tools)
        if searches == (searched.method == "none"):
            if searches:
                return Fault(
                    ("retrieval", "method"), "none: the tool search has nothing to search; choose another method"
                )
            unused = f"without search, retrieval.method {searched.method} is never used; set it to none"
            return Fault(("agent", "tools"), unused)
        return searched.scope_fault("the search tool")
