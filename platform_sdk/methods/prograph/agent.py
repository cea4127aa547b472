"""The agent: in each turn it thinks, then queries or answers, until it has answered or reached the turn limit.

A rollout is one trajectory of role ``agent``. Queries are recorded on the agent's turns, evidence on the environment's
replies, whose tokens have no advantage. A query in the last allowed turn is not searched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from platform_sdk.agents.planner_worker import Answer, Malformed
from platform_sdk.agents.speaker import PolicyAgent, Reply
from platform_sdk.methods.prograph import prompts
from platform_sdk.methods.prograph.grammar import parse
from platform_sdk.methods.prograph.rewards import rewards
from platform_sdk.methods.prograph.settings import AgentSpec
from platform_sdk.methods.prograph.structure import with_structure
from platform_sdk.records import Evidence, Outcome, Question, Rollout, Trajectory
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.rollout import Agent, SearchFunction, SearchRequest, look_up

Speak = Callable[[Dialogue, int], Agent[Reply | None]]
"""Samples the next turn of a dialogue, given its index from 0; returns None if the context is full."""


@dataclass(frozen=True)
class ProGraphAgent(PolicyAgent):
    """The agent with the settings ``spec``."""

    spec: AgentSpec
    search: SearchFunction

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """Make one attempt at a question; return the scored rollout."""
        spec, speaker = self.spec, self.speaker(question, attempt, self.spec.max_tokens)
        dialogue = speaker.dialogue(
            prompts.instruction(spec.prompts, spec.max_turns),
            prompts.opening(question.text),
            prompts.example(spec.prompts) if spec.demonstrate else (),
        )

        def speak(dialogue: Dialogue, turn: int) -> Agent[Reply | None]:
            return speaker.reply(dialogue, turn, thread="")

        main, outcome = yield from converse(dialogue, spec, speak, self.search)
        turns = with_structure(question.answers, main.turns, count_repeats=spec.count_repeats)
        main = main.model_copy(update={"turns": turns})
        rollout = self.recorded(question, attempt, speaker.seed, main, (), outcome)
        return rollout.model_copy(update={"rewards": rewards(rollout)})


def converse(
    dialogue: Dialogue, spec: AgentSpec, speak: Speak, search: SearchFunction
) -> Agent[tuple[Trajectory, Outcome]]:
    """Continue a dialogue until it ends; return it with its outcome."""
    taken = sum(turn.speaker == "agent" for turn in dialogue.turns)
    outcome: Outcome = "iteration_limit"
    answer = None
    for turn in range(taken, spec.max_turns):
        reply = yield from speak(dialogue, turn)
        if reply is None:
            outcome = "context_limit"
            break
        said = parse(reply.text)
        if isinstance(said, Answer):
            outcome, answer = "answered", said.text
            break
        if isinstance(said, Malformed):
            dialogue.note_malformed(said.reason)
            if turn + 1 < spec.max_turns:
                dialogue.tell(prompts.error(said.reason))
            continue
        dialogue.note_asked([said.text])
        if turn + 1 < spec.max_turns:
            found: list[list[Evidence]] = yield look_up(search, [SearchRequest(said.text)], spec.top_k)
            dialogue.tell(prompts.knowledge(found[0]), found[0])
    return dialogue.trajectory("agent", "agent", answer=answer), outcome
