"""The searching teacher: the agent with worked paths, with or without the answer (the paper's ablations)."""

from __future__ import annotations

from dataclasses import dataclass

from platform_sdk.agents.planner_messages import Medium, medium_of
from platform_sdk.agents.planner_worker import Answer, Malformed, leads_to, new_entities, topics
from platform_sdk.agents.speaker import Policy
from platform_sdk.methods.evipath.agent import evipath
from platform_sdk.methods.evipath.demonstrations import demonstrations
from platform_sdk.methods.evipath.grammar import parse_planner, thoughts_of
from platform_sdk.methods.evipath.planning import without_plan
from platform_sdk.methods.evipath.records import Example, Step, SubQuestion
from platform_sdk.methods.evipath.settings import AgentSpec, SynthesisSpec
from platform_sdk.methods.method import RunContext
from platform_sdk.records import Question, Rollout, Trajectory
from platform_sdk.sampling.rollout import Agent, SearchFunction
from platform_sdk.tracking.outcomes import digest_of


@dataclass(frozen=True)
class SearchingTeacher:
    """Teacher that solves the questions; paths with a wrong answer are rejected."""

    run: RunContext[AgentSpec]
    policy: Policy
    spec: SynthesisSpec
    search: SearchFunction

    def example(self, question: Question, attempt: int) -> Agent[Example]:
        """Solve a question once, and return its path; another attempt samples with another seed."""
        run, medium = self.run, medium_of(self.run.environment)
        agent = evipath(
            run, self.policy, run.decoding, "synthesis", self.search,
            demonstrated=("planner", "executor"), tell_answer=self.spec.mode == "answer-only",
        )  # fmt: skip
        rollout = yield from agent.rollout(question, attempt)
        found = path_of(rollout, medium, run.agent)
        worked = demonstrations(medium) if run.agent.prompts == "standard" else ()
        told = digest_of(self.spec.mode, [example.model_dump(mode="json") for example in worked])
        return found.model_copy(
            update={
                "teacher": self.policy.weights,
                "prompts": told,
                "tokens": sum(sum(t.agent_mask) for t in rollout.recorded),
                "calls": sum(turn.speaker == "agent" for t in rollout.recorded for turn in t.turns),
            }
        )


def path_of(rollout: Rollout, medium: Medium, agent: AgentSpec) -> Example:
    """Return a rollout as a path, rejected if it has a malformed turn, no answer, or candidates that share a name."""
    question = rollout.question
    pool = {item.id: item for trajectory in rollout.others for item in trajectory.evidence}
    path = Example(
        id=question.id, dataset=question.dataset, question=question.text, type=question.type, hops=question.hops,
        medium=medium, answers=question.answers, pool=tuple(pool.values()),
        candidates=question.topic_entities if medium == "kg" else (),
    )  # fmt: skip
    malformed = next((t.malformed for tr in rollout.recorded for t in tr.turns if t.malformed is not None), None)
    if malformed is not None:
        return path.model_copy(update={"rejected": "tags", "detail": malformed})
    if rollout.outcome != "answered":
        reason = rollout.outcome.replace("_", "-")
        return path.model_copy(update={"rejected": reason, "detail": "the path ends without an answer"})
    workers = {trajectory.id: trajectory for trajectory in rollout.others}
    places = {id: place for place, id in enumerate(pool)}
    entities = topics(question) if medium == "kg" else []
    for turn in rollout.main.turns:
        if turn.speaker != "agent":
            continue
        known = path.known_candidates()[-1]
        action = parse_planner(turn.text, medium, candidates=len(known), max_questions=agent.sub_questions)
        assert not isinstance(action, Malformed)
        thoughts = thoughts_of(turn.text)
        plan, thoughts = without_plan(thoughts) if not path.steps else ((), thoughts)
        if plan:
            path = path.model_copy(update={"plan": plan})
        if isinstance(action, Answer):
            return path.model_copy(update={"thoughts": thoughts, "answer": action.text})
        asked = tuple(
            _read(workers[call], sub.text, "" if sub.candidate is None else known[sub.candidate], places)
            for call, sub in zip(turn.calls, action.sub_questions, strict=True)
        )
        path = path.model_copy(update={"steps": (*path.steps, Step(thoughts=thoughts, asked=asked))})
        if medium == "kg":  # the agent tells candidates apart by their ids, a path by their names
            read = [workers[call] for call in turn.calls]
            chosen = [leads_to(worker.evidence[index]) for worker in read for index in worker.selected]
            entities += new_entities(chosen, entities)
            if [entity.name for entity in entities] != path.known_candidates()[-1]:
                return path.model_copy(update={"rejected": "namesakes", "detail": "entities share a name or an id"})
    raise AssertionError("an answered rollout has a turn that answers")


def _read(worker: Trajectory, question: str, candidate: str, places: dict[str, int]) -> SubQuestion:
    return SubQuestion(
        question=question, candidate=candidate, answer=worker.answer or "", selected=worker.selected,
        shown=tuple(places[item.id] for item in worker.evidence),
        thoughts=thoughts_of(worker.turns[-1].text),
    )  # fmt: skip
