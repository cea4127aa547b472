"""The agent: it thinks, then calls a tool or answers, until it has answered or its turns are used up.

A rollout is one trajectory of role ``agent``. Calls and their results are on the agent's turns, the evidence on the
environment's messages, whose tokens are never trained on. A call in the last allowed turn is recorded without a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from platform_sdk.agents.planner_rewards import rewards
from platform_sdk.agents.planner_worker import Answer, Malformed
from platform_sdk.agents.speaker import PolicyAgent
from platform_sdk.evaluation.metrics.evidence import evidence_recall
from platform_sdk.methods.react import prompts
from platform_sdk.methods.react.grammar import STOPS, parse, parse_search_r1
from platform_sdk.methods.react.settings import AgentSpec
from platform_sdk.records import SEARCH, Outcome, Question, RecordedCall, Rollout, ToolCall, ToolResult, recorded_call
from platform_sdk.sampling.rollout import Agent
from platform_sdk.tools.base import Tool, call_tool


@dataclass(frozen=True)
class ReactAgent(PolicyAgent):
    """The agent that ``spec`` describes, with its opened tools by name."""

    spec: AgentSpec
    tools: Mapping[str, Tool]

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """Make one attempt at a question; return the scored rollout."""
        spec, speaker = self.spec, self.speaker(question, attempt, self.spec.max_tokens)
        instruction = prompts.instruction(spec.prompts, spec.max_turns, self.tools.values())
        dialogue = speaker.dialogue(instruction, prompts.opening(question.text))
        search_r1 = spec.prompts == "search_r1"
        outcome: Outcome = "iteration_limit"
        answer = None
        for turn in range(spec.max_turns):
            last = turn + 1 == spec.max_turns
            reply = yield from speaker.reply(dialogue, turn, thread="", stop=stops(spec))
            if reply is None:
                outcome = "context_limit"
                break
            action = (parse_search_r1 if search_r1 else parse)(reply.text, self.tools)
            if isinstance(action, Answer):
                outcome, answer = "answered", action.text
                break
            if isinstance(action, Malformed):
                dialogue.note_malformed(action.reason)
                if not last:
                    dialogue.tell(prompts.error(spec.prompts, action.reason))
            elif last:
                dialogue.note_tool_calls([RecordedCall(tool=action.tool, arguments=action.arguments)])
            else:
                [result] = yield call_tool(self.tools[action.tool], _scoped(action, question))
                assert isinstance(result, ToolResult)
                dialogue.note_tool_calls([recorded_call(action, result)])
                dialogue.tell(prompts.result(spec.prompts, result), result.evidence)
        main = dialogue.trajectory("agent", "agent", answer=answer)
        rollout = self.recorded(question, attempt, speaker.seed, main, (), outcome)
        return rollout.model_copy(update={"rewards": rewards(rollout)})


def _scoped(call: ToolCall, question: Question) -> ToolCall:
    """Return the call; a search also names the question, whose own passages some environments search."""
    if call.tool != SEARCH:
        return call
    return ToolCall(tool=call.tool, arguments={**call.arguments, "question_id": question.id})


def stops(spec: AgentSpec) -> tuple[str, ...]:
    """Return the strings that end a turn, in addition to end tokens."""
    return STOPS if spec.prompts == "search_r1" else ()


def measures(rollout: Rollout) -> dict[str, float]:
    """Return the metrics of a rollout: the answer's scores, and the turns and calls that led to it.

    ``tool_calls`` counts the calls of all tools, ``tool_errors`` the failed ones.
    """
    turns = rollout.main.agent_turns
    calls = [call for turn in turns for call in turn.tool_calls]
    return {
        **rollout.rewards,
        "answered": float(rollout.outcome == "answered"),
        "turns": float(len(turns)),
        "searches": float(sum(call.tool == SEARCH for call in calls)),
        "tool_calls": float(len(calls)),
        "tool_errors": float(sum(call.error for call in calls)),
        "tokens": float(sum(rollout.main.agent_mask)),
        **evidence_recall(rollout),
    }
