"""An agent in LangGraph: a graph of model and tools; the search is a tool of the session's MCP server.

The tools of the server are listed and called by the official ``mcp`` package (langchain-mcp-adapters has the same in
one line, but no release of it takes ``mcp`` 2 yet).
"""

import asyncio
import json
import os
import re
import sys
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from mcp import Client

TURNS = 6


@tool
def calculator(expression: str) -> str:
    """Return the difference of two whole numbers, as 1990 - 1950."""
    numbers = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", expression)
    return str(int(numbers[1]) - int(numbers[2])) if numbers else "Error : only NUMBER - NUMBER is known"


async def tools_of(server: Client) -> list[BaseTool]:
    """Return the tools of an MCP server as LangChain's."""

    def wrapped(name: str, description: str, schema: dict[str, Any]) -> BaseTool:
        async def call(**arguments: Any) -> str:
            result = await server.call_tool(name, {"k": 2, **arguments})
            found = (result.structured_content or {}).get("results", ())
            return "\n".join(f"{item['title']} : {item['text']}" for item in found) or "( nothing found )"

        return StructuredTool(name=name, description=description, args_schema=schema, coroutine=call)

    listed = await server.list_tools()
    return [wrapped(each.name, each.description or "", each.input_schema) for each in listed.tools]


async def answer(question: str) -> str | None:
    async with Client(os.environ["HOPFORGE_MCP_URL"]) as server:
        tools = [*await tools_of(server), calculator]
        model = ChatOpenAI(model="policy").bind_tools(tools)

        async def think(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", think)
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        system = SystemMessage("Think , then use a tool or write the answer .")
        start: MessagesState = {"messages": [system, HumanMessage(f"Question : {question}")]}
        try:
            state = await graph.compile().ainvoke(start, {"recursion_limit": 2 * TURNS})
        except GraphRecursionError:
            return None
    found = re.search(r"<answer>(.*?)</answer>", state["messages"][-1].text)
    return found[1].strip() if found else None


if __name__ == "__main__":
    print(json.dumps({"answer": asyncio.run(answer(json.load(sys.stdin)["question"]))}))
