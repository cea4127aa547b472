"""The strategies: questions in, one rollout each whose main trajectory ends with the answer.

IRCoT (Trivedi et al., 2023, arXiv 2212.10509, section 3) searches with the question, then in turns samples the next
sentence of reasoning from the passages so far and searches with that sentence; a reader answers from all passages. Each
sentence is a dialogue with one reply, since its prompt has other passages than the one before; these dialogues are the
rollout's other trajectories. The paper shows 15 to 20 worked questions, these prompts one at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from platform_sdk.agents.sections import marked, without_thoughts
from platform_sdk.agents.speaker import PolicyAgent, Reply, Speaker
from platform_sdk.data.sentences import split_sentences
from platform_sdk.evaluation.answers import answer_rewards
from platform_sdk.methods.prompting import prompts
from platform_sdk.methods.prompting.settings import SEARCHING, AgentSpec
from platform_sdk.records import Evidence, Outcome, Question, Rollout, Trajectory
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.rollout import Agent, SearchFunction, SearchRequest, look_up


@dataclass(frozen=True)
class PromptedAgent(PolicyAgent):
    """The agent of a strategy."""

    spec: AgentSpec
    search: SearchFunction

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """Make one attempt at a question; return the scored rollout."""
        spec, speaker = self.spec, self.speaker(question, attempt, self.spec.max_tokens)
        passages: Sequence[Evidence] = ()
        steps: list[Trajectory] = []
        if spec.strategy in SEARCHING:
            passages = yield from self._search(question, question.text)
        if spec.strategy == "ircot":
            passages, steps = yield from self._interleaved(question, attempt, passages)
        dialogue = speaker.dialogue(
            prompts.instruction(spec.strategy),
            prompts.opening(question.text, passages),
            prompts.example(spec.strategy) if spec.demonstrate else (),
            passages,
        )
        reply = yield from speaker.reply(dialogue, "answer")
        answer, outcome = self._read(dialogue, reply)
        if reply is not None and steps:
            dialogue.note_asked(calls=[step.id for step in steps])
        main = dialogue.trajectory("agent", "agent", answer=answer)
        rollout = self.recorded(question, attempt, speaker.seed, main, steps, outcome)
        return rollout.model_copy(update={"rewards": rewards(rollout)})

    def _read(self, dialogue: Dialogue, reply: Reply | None) -> tuple[str | None, Outcome]:
        """Return the answer of the last reply, and the rollout's outcome."""
        if reply is None:
            return None, "context_limit"
        text = without_thoughts(reply.text).strip()
        if self.spec.strategy in ("chain_of_thought", "ircot"):
            answer = marked(text, prompts.FINAL_READ)
            if answer is None:
                dialogue.note_malformed(f"no line begins with {prompts.FINAL}")
            return answer, "iteration_limit" if answer is None else "answered"
        return text or None, "answered" if text else "iteration_limit"

    def _interleaved(
        self, question: Question, attempt: int, passages: Sequence[Evidence]
    ) -> Agent[tuple[list[Evidence], list[Trajectory]]]:
        """Alternate sentences of reasoning and searches; return all passages and the sentences' dialogues."""
        spec, speaker = self.spec, self.speaker(question, attempt, self.spec.step_tokens)
        kept = list(passages)[: spec.max_passages]
        thoughts: list[str] = []
        steps: list[Trajectory] = []
        for number in range(spec.max_steps):
            dialogue = speaker.dialogue(
                prompts.NEXT_SENTENCE,
                prompts.opening(question.text, kept, thoughts),
                prompts.step_example() if spec.demonstrate else (),
                tuple(kept),
            )
            sentence = yield from self._sentence(speaker, dialogue, f"step-{number}")
            last = number + 1 == spec.max_steps or not sentence or marked(sentence, prompts.FINAL_READ) is not None
            if not last:
                dialogue.note_asked([sentence])
            steps.append(dialogue.trajectory(f"step-{number}", "worker", answer=sentence or None))
            if last:
                break
            thoughts.append(sentence)
            known = {item.id for item in kept}
            found = yield from self._search(question, sentence)
            kept += [item for item in found if item.id not in known][: spec.max_passages - len(kept)]
        return kept, steps

    def _sentence(self, speaker: Speaker, dialogue: Dialogue, place: str) -> Agent[str]:
        """Return the first sentence of the next reply; empty if there is no room or the reply has no text."""
        reply = yield from speaker.reply(dialogue, place)
        return next(iter(split_sentences(without_thoughts(reply.text) if reply else "")), "")

    def _search(self, question: Question, query: str) -> Agent[tuple[Evidence, ...]]:
        """Return the passages of a query; some environments search the question's own passages."""
        request = SearchRequest(query, {"question_id": question.id})
        found: list[list[Evidence]] = yield look_up(self.search, [request], self.spec.top_k)
        return tuple(found[0])


def rewards(rollout: Rollout) -> dict[str, float]:
    """Return the answer's EM and F1 under the dataset's convention."""
    return answer_rewards(rollout.main.answer, rollout.question)


def measures(rollout: Rollout, spec: AgentSpec) -> dict[str, float]:
    """Return the metrics of a rollout; ``evidence_recall`` is the share of gold passages shown to the reader, by title.

    ``searches`` counts the search with the question and those with sentences of reasoning.
    """
    queries = sum(len(turn.queries) for step in rollout.others for turn in step.turns)
    found = {
        **rollout.rewards,
        "answered": float(rollout.outcome == "answered"),
        "searches": float(queries + (spec.strategy in SEARCHING)),
        "calls": float(1 + len(rollout.others)),
        "tokens": float(sum(sum(one.agent_mask) for one in (rollout.main, *rollout.others))),
    }
    gold = set(rollout.question.gold_passages)
    if gold and spec.strategy in SEARCHING:
        found["evidence_recall"] = len(gold & {item.title for item in rollout.main.evidence}) / len(gold)
    return found
