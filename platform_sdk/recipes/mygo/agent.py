"""Mujica: a planner that asks, workers that read (Mujica-MyGO, section 3.2).

The planner thinks and then answers or sends out the sub-questions that can be solved now; workers answer them
side by side, so the plan unrolls into a directed acyclic graph. The planner's dialogue holds questions and
one-sentence reports only, never raw passages. Both are generators for ``sampling.rollout.run``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from platform_sdk.recipes.mygo import prompts
from platform_sdk.recipes.mygo.grammar import (
    Answer,
    Ask,
    Form,
    Malformed,
    Reading,
    SubQuestion,
    parse_planner,
    parse_worker,
)
from platform_sdk.recipes.mygo.rewards import rewards
from platform_sdk.recipes.mygo.settings import AgentSpec
from platform_sdk.records import Evidence, Question, Rollout, Trajectory
from platform_sdk.sampling.dialogue import Dialogue, with_instruction
from platform_sdk.sampling.engine import Completion, PromptTooLong, SamplingParams
from platform_sdk.sampling.rollout import Agent, Generate, Search, SearchRequest, Together
from platform_sdk.sampling.seeds import seed_of

CUT_OFF = "the turn is longer than allowed"
UNREADABLE = "Error : the assistant's reply could not be read ."
TOO_LONG = "Error : the materials are too long to read ."


def form_of(environment: str) -> Form:
    """The form of the grammar that an environment calls for."""
    return "kg" if environment.endswith("-kg") else "text"


@dataclass(frozen=True)
class Report:
    """What a worker hands back: its trajectory, its sentence, and the entities it found (graph form)."""

    trajectory: Trajectory
    sentence: str
    found: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mujica:
    """The agent with everything that one rollout depends on besides the question and the attempt.

    ``weights`` and ``corpus`` are the digests of the policy and of what is searched.
    """

    tokenizer: Any
    spec: AgentSpec
    form: Form
    demonstrate: bool
    temperature: float
    top_p: float
    top_k: int
    weights: str
    corpus: str
    seed: int
    phase: str

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """One attempt at a question; returns the scored rollout."""
        seed = seed_of(self.seed, self.phase, question.id, attempt)
        candidates = list(question.topic_entities) if self.form == "kg" else []
        role: Literal["planner", "agent"] = "planner" if self.spec.split else "agent"
        prompt = prompts.role_prompt(self.spec.prompts, role, self.form, most=self.spec.most)
        planner = Dialogue(
            self.tokenizer,
            prompt.system(demonstrate=self.demonstrate),
            prompts.planner_opening(question.text, candidates, self.form),
            prompt.turns(demonstrate=self.demonstrate),
        )
        workers: list[Trajectory] = []
        answer: str | None = None
        outcome: Literal["answered", "iteration_limit", "context_limit"] = "iteration_limit"
        for iteration in range(self.spec.iteration_limit):
            try:
                completion = yield Generate(
                    tuple(planner.token_ids),
                    self._params(self.spec.planner_tokens, seed, iteration),
                    f"{question.id}#{attempt}",
                    role,
                )
            except PromptTooLong:
                outcome = "context_limit"
                break
            action = self._planned(planner, completion, len(candidates))
            if isinstance(action, Malformed):
                planner.note_malformed(action.reason)
                planner.tell(prompts.error_observation(action.reason))
                continue
            if isinstance(action, Answer):
                answer, outcome = action.text, "answered"
                break
            asked = [(sub, self._request(sub, candidates, question)) for sub in action.sub_questions]
            queries = [sub.text for sub in action.sub_questions]
            evidence: list[Evidence] = []
            if self.spec.split:
                calls = [f"{iteration}.{n}" for n in range(len(asked))]
                planner.note_asked(queries, calls)
                reports: list[Report] = yield Together(
                    tuple(
                        self._worker(sub, request, id, f"{question.id}#{attempt}", seed)
                        for id, (sub, request) in zip(calls, asked, strict=True)
                    )
                )
                workers += [report.trajectory for report in reports]
                seen = [report.sentence for report in reports]
                found = [name for report in reports for name in report.found]
            else:
                planner.note_asked(queries)
                lists: list[list[Evidence]] = yield Search(tuple(request for _, request in asked), self.spec.top_k)
                evidence = [item for items in lists for item in items]
                seen = [prompts.materials(evidence, self.form)]
                found = [_tail(item) for item in evidence if item.kind == "triple"]
            new = [name for name in dict.fromkeys(found) if name not in candidates]
            planner.tell(prompts.observation(seen, new, len(candidates)), evidence)
            candidates += new
        rollout = Rollout(
            question=question,
            attempt=attempt,
            seed=seed,
            main=planner.trajectory(role, role, answer=answer),
            others=tuple(workers),
            outcome=outcome,
            weights=self.weights,
            corpus=self.corpus,
        )
        return rollout.model_copy(update={"rewards": rewards(rollout)})

    def _worker(self, sub: SubQuestion, request: SearchRequest, id: str, dialogue: str, seed: int) -> Agent[Report]:
        """A mini-RAG: retrieve, choose by index, answer in one sentence."""
        [evidence] = yield Search((request,), self.spec.top_k)
        prompt = prompts.role_prompt(self.spec.prompts, "worker", self.form, most=1)
        worker = Dialogue(
            self.tokenizer,
            prompt.system(demonstrate=self.demonstrate),
            prompts.worker_opening(sub.text, evidence, self.form),
            prompt.turns(demonstrate=self.demonstrate),
            evidence,
        )
        try:
            completion = yield Generate(
                tuple(worker.token_ids), self._params(self.spec.worker_tokens, seed, id), f"{dialogue}/{id}", "worker"
            )
        except PromptTooLong:
            return Report(worker.trajectory(id, "worker"), TOO_LONG)
        text = worker.hear(completion)
        reading: Reading | Malformed = (
            Malformed(CUT_OFF)
            if completion.finish == "length"
            else parse_worker(text, self.form, materials=len(evidence))
        )
        if isinstance(reading, Malformed):
            worker.note_malformed(reading.reason)
            return Report(worker.trajectory(id, "worker"), UNREADABLE)
        trajectory = worker.trajectory(id, "worker", selected=reading.selected, answer=reading.sentence)
        found = tuple(_tail(evidence[i]) for i in reading.selected) if self.form == "kg" else ()
        return Report(trajectory, reading.sentence, found)

    def _planned(self, planner: Dialogue, completion: Completion, candidates: int) -> Ask | Answer | Malformed:
        text = planner.hear(completion)
        if completion.finish == "length":
            return Malformed(CUT_OFF)
        return parse_planner(text, self.form, candidates=candidates, most=self.spec.most)

    def _request(self, sub: SubQuestion, candidates: Sequence[str], question: Question) -> SearchRequest:
        head = {} if sub.candidate is None else {"head": candidates[sub.candidate]}
        return SearchRequest(sub.text, {"question_id": question.id} | head)

    def _params(self, most: int, seed: int, place: str | int) -> SamplingParams:
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_tokens=most,
            seed=seed_of(seed, place),
        )


def undemonstrated(tokenizer: Any, spec: AgentSpec, form: Form, rollout: Rollout) -> Rollout:
    """The rollout as if it had been sampled without worked examples: what the warm-up learns from.

    It is there to make the examples needless, so the policy must learn what it said from the bare prompts that all
    later sampling uses (Mujica-MyGO, section 4.2).
    """

    def bare(trajectory: Trajectory) -> Trajectory:
        most = 1 if trajectory.role == "worker" else spec.most
        prompt = prompts.role_prompt(spec.prompts, trajectory.role, form, most=most)
        return with_instruction(trajectory, tokenizer, prompt.system(demonstrate=False))

    return rollout.model_copy(
        update={"main": bare(rollout.main), "others": tuple(bare(other) for other in rollout.others)}
    )


def _tail(item: Evidence) -> str:
    """The entity that a triple leads to; graph evidence carries it as its title."""
    return item.title
