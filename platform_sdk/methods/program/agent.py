"""The agent: a user's program, whose requests for completions and searches the rollout loop answers.

Every thread of calls is a trajectory of sampled tokens (see ``platform_sdk.gateway.threads``); the thread that has the
answer is the main one. The program gets the question, and never its answers or gold evidence.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from platform_sdk.agents.own_reward import own_reward
from platform_sdk.agents.speaker import PolicyAgent
from platform_sdk.credentials import without_credentials
from platform_sdk.display import encodable, shortened
from platform_sdk.errors import UserError
from platform_sdk.evaluation.answers import answer_rewards
from platform_sdk.gateway.events import Bounds, CompletionAsked, Ended, SearchAsked
from platform_sdk.gateway.programs import Attempt, Program
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.records import ProgramEnd, Question, Rollout, Trajectory, given_evidence
from platform_sdk.sampling.awaiting import Await
from platform_sdk.sampling.engine import Completion, PromptTooLong
from platform_sdk.sampling.rollout import Agent, Gather, Generate, SearchFunction, SearchRequest, look_up
from platform_sdk.sampling.seeds import seed_of

REPEATS = 2
"""Number of times that an attempt is repeated whose program was killed from outside, e.g. by the kernel."""
JUDGED_FROM = 20
"""Number of attempts from which the share of failures is checked."""
NO_OUTPUT = "no output on standard error"
ROLE = "agent"


@dataclass
class Failures:
    """Failed attempts of a process, by outcome and last error message."""

    maximum: float
    attempts: int = 0
    causes: Counter[str] = field(default_factory=Counter)

    def note(self, end: Ended) -> None:
        """Count an attempt.

        Raises:
            UserError: more than ``maximum`` of at least ``JUDGED_FROM`` attempts failed.
        """
        self.attempts += 1
        if end.outcome != "answered":
            lines = end.stderr.strip().splitlines()
            status = "" if end.status is None else f" (exit status {end.status})"
            self.causes[f"{end.outcome}{status}: {shortened(lines[-1], 300) if lines else NO_OUTPUT}"] += 1
        failed = self.causes.total()
        if self.attempts >= JUDGED_FROM and failed > self.maximum * self.attempts:
            [(cause, count)] = self.causes.most_common(1)
            raise UserError(
                f"{failed} of {self.attempts} attempts of the program failed, more than agent.failures allows; {count} "
                f"of them: {cause}; run hopforge program check RECIPE"
            )


@dataclass(frozen=True)
class ProgramAnswer:
    """The last line that a program printed: its answer, the call that has it, and numbers that it reports."""

    answer: str | None
    main: str | None = None
    measures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramAgent(PolicyAgent):
    """The program that ``spec`` describes, with its gateway."""

    spec: AgentSpec
    program: Program
    gateway: Gateway
    search: SearchFunction
    gives_passages: bool
    failures: Failures

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """Run the program on a question; return the scored rollout.

        A program that is killed from outside runs again, with the same seeds.
        """
        seed = seed_of(self.seed, self.seed_name, question.id, attempt)
        for _ in range(REPEATS + 1):
            session, end = yield from self._run(question, attempt, seed)
            if not end.killed:
                break
        rollout = self._record(question, attempt, seed, session, end)
        self.failures.note(end)
        return rollout

    def told(self, question: Question) -> dict[str, Any]:
        """Return the program's input: the question, and its passages if the recipe gives them; never answers."""
        told: dict[str, Any] = {"id": question.id, "question": question.text}
        if self.gives_passages:
            told["passages"] = [passage.model_dump(mode="json") for passage in question.context]
        return told

    def _run(self, question: Question, attempt: int, seed: int) -> Agent[tuple[Session, Ended]]:
        spec = self.spec
        bounds = Bounds(
            calls=spec.calls, sampled_tokens=spec.sampled_tokens, request_bytes=spec.request_bytes,
            concurrent=spec.concurrent,
        )  # fmt: skip
        given = given_evidence(question.context) if self.gives_passages else ()
        session = self.gateway.open(seed=seed, name=f"{question.id}#{attempt}", role=ROLE, bounds=bounds, given=given)
        running = Attempt(self.program, self.told(question), session)
        try:
            ends = yield Gather(tuple(self._answer(session, question) for _ in range(spec.concurrent)))
        finally:
            session.close()
            running.stop()
        # The token is part of URLs that errors quote; it differs in every session.
        stderr = without_credentials(ends[0].stderr.replace(session.token, "…"))
        return session, replace(ends[0], stderr=stderr)

    def _answer(self, session: Session, question: Question) -> Agent[Ended]:
        """Answer the program's requests until it ends."""
        while True:
            event = yield Await(session.inbox)
            if isinstance(event, Ended):
                session.put(event)  # for the others that answer this session
                return event
            if isinstance(event, SearchAsked):
                request = SearchRequest(event.query, {"question_id": question.id})
                [found] = yield look_up(self.search, [request], event.k)
                session.found(event, tuple(found))
                continue
            assert isinstance(event, CompletionAsked)
            try:
                completion = yield from self._complete(session, event)
            except (PromptTooLong, Refusal) as error:
                session.refuse(event, error)
            else:
                session.completed(event, completion)

    def _complete(self, session: Session, asked: CompletionAsked) -> Agent[Completion]:
        """Sample a completion.

        Raises:
            PromptTooLong, Refusal: there is none, and the program gets the reason.
        """
        completion: Completion = yield Generate(asked.token_ids, asked.params, asked.thread, ROLE)
        return completion

    def _record(self, question: Question, attempt: int, seed: int, session: Session, end: Ended) -> Rollout:
        given = read_answer(end.stdout) if end.outcome == "answered" else ProgramAnswer(None)
        outcome = "no_answer" if end.outcome == "answered" and given.answer is None else end.outcome
        threads = session.main_first(given.main)
        recorded = session.trajectories(given.main) or (_silent(question, self.policy.tokenizer),)
        main = recorded[0].model_copy(update={"answer": given.answer})
        rollout = self.recorded(question, attempt, seed, main, recorded[1:], outcome)
        ended = ProgramEnd(
            status=end.status, stderr=end.stderr, notes=session.notes,
            threads=tuple(thread.reason for thread in threads), measures=dict(given.measures),
        )  # fmt: skip
        rollout = rollout.model_copy(update={"program": ended})
        return rollout.model_copy(update={"rewards": rewards(self.spec, rollout)})


def _silent(question: Question, tokenizer: Any) -> Trajectory:
    """Return the trajectory of a program without completions: the question, on whose tokens nothing is trained."""
    tokens = tuple(tokenizer(question.text, add_special_tokens=False)["input_ids"])
    return Trajectory(
        id=ROLE, role=ROLE, token_ids=tokens, agent_mask=(0,) * len(tokens), logprobs=(0.0,) * len(tokens), turns=()
    )


def read_answer(line: str) -> ProgramAnswer:
    """Read a program's last line: a JSON object with ``answer``, ``main`` and ``measures``, or the answer as a text."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        content = None
    if not isinstance(content, dict) or "answer" not in content:
        return ProgramAnswer(_text(line) or None)
    answer, main, measures = content["answer"], content.get("main"), content.get("measures")
    numbers = {
        _text(str(name)): float(value)
        for name, value in (measures.items() if isinstance(measures, dict) else ())
        if isinstance(value, int | float) and abs(value) < 1e300
    }
    text = "" if answer is None else _text(str(answer))
    return ProgramAnswer(text or None, main if isinstance(main, str) else None, numbers)


def _text(answer: str) -> str:
    """Return an answer without surrounding space, and without lone surrogates, which no file can hold."""
    return encodable(answer).strip()


def rewards(spec: AgentSpec, rollout: Rollout) -> dict[str, float]:
    """Return the rewards of a rollout by name.

    They are the answer's EM and F1 under the dataset's convention, ``answered`` (the program gave an answer) and, if
    the recipe names a function, ``own``.
    """
    answered = float(rollout.outcome == "answered")
    found = answer_rewards(rollout.main.answer, rollout.question) | {"answered": answered}
    if spec.reward is None:
        return found
    return found | {"own": own_reward(spec.reward, rollout.model_copy(update={"rewards": found}))}


def measures(rollout: Rollout) -> dict[str, float]:
    """Return the metrics of a rollout: its rewards, ``failed``, and counts of calls, searches, threads and tokens.

    ``evidence_recall`` is the share of gold passages that the program was shown, by title.
    """
    turns = [turn for trajectory in rollout.trajectories for turn in trajectory.turns]
    found = {
        **rollout.rewards,
        "failed": float(rollout.outcome not in ("answered", "no_answer")),
        "calls": float(sum(turn.speaker == "agent" for turn in turns)),
        "searches": float(sum(len(turn.queries) for turn in turns)),
        "threads": float(len(rollout.program.threads) if rollout.program else 0),
        "tokens": float(sum(sum(trajectory.agent_mask) for trajectory in rollout.trajectories)),
    }
    gold = set(rollout.question.gold_passages)
    if gold:
        shown = {item.title for trajectory in rollout.trajectories for item in trajectory.evidence}
        found["evidence_recall"] = len(gold & shown) / len(gold)
    return found
