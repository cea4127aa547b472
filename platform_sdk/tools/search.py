"""Search of the run's corpus as a tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from platform_sdk.records import SEARCH, ToolCall, ToolResult
from platform_sdk.sampling.rollout import SearchFunction, SearchRequest, no_search


class SearchArguments(BaseModel):
    """Arguments of the search."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    query: str = Field(max_length=2000)


@dataclass(frozen=True)
class SearchTool:
    """Tool that returns the best ``k`` pieces of evidence for a query. Arguments besides the query are the scope."""

    search: SearchFunction = no_search
    k: int = 3
    name: str = SEARCH
    description: str = "finds passages about one fact; name the subject"
    arguments: type[BaseModel] = SearchArguments

    def call(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Search for the queries of all calls together."""
        requests = []
        for call in calls:
            scope = {name: str(value) for name, value in call.arguments.items() if name != "query"}
            requests.append(SearchRequest(str(call.arguments["query"]), scope))
        return [ToolResult(evidence=tuple(found)) for found in self.search(requests, self.k)]
