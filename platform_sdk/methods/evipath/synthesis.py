"""Synthesis of reasoning paths: resumable per question, shared by processes, independent of their order.

Every finished question is appended to ``drafts.jsonl``. At the end ``examples.jsonl`` has the kept examples and
``rejected.jsonl`` the others with reasons, both in the order of the questions.
"""

from __future__ import annotations

import json
import logging
import random
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from platform_sdk.agents.planner_messages import medium_of
from platform_sdk.config.struct import Struct
from platform_sdk.errors import UserError
from platform_sdk.files import write_text
from platform_sdk.methods.evipath.checks import Limits, in_question, judged
from platform_sdk.methods.evipath.evidence import Similarity
from platform_sdk.methods.evipath.proxy import check_unit
from platform_sdk.methods.evipath.records import Example
from platform_sdk.methods.evipath.settings import AgentSpec, SynthesisSpec
from platform_sdk.methods.method import RunContext, Sampling, SamplingOutcome, SamplingStep
from platform_sdk.processes.shares import EndOfShare, Share, own_share
from platform_sdk.record_files import AppendLog, digest_records, read_log, remove_log, write_jsonl, write_log
from platform_sdk.records import Question
from platform_sdk.run_dir import PhaseDir
from platform_sdk.sampling.rollout import Agent
from platform_sdk.sampling.rollout import run as run_agents
from platform_sdk.sampling.sampler import seconds_of
from platform_sdk.tracking.outcomes import write_json

_LOG = logging.getLogger(__name__)

DRAFTS, EXAMPLES, REJECTED = "drafts.jsonl", PhaseDir.examples, PhaseDir.rejected
AGENT = PhaseDir.agent
"""File with the settings of the agent for which the examples were checked; an export uses them."""
Write = Callable[[Question, int], Agent[Example]]
"""Writes an attempt at a question's path: the question, and the attempt's number from 0."""
Round = Sampling[AgentSpec, SynthesisSpec, "SynthesisCarry"]


class SynthesisCarry(Struct):
    """Carry of a synthesis: the folder's name, and the digest of the kept examples."""

    phase: str = ""
    examples: str = ""


@dataclass(frozen=True)
class Teaching:
    """An open teacher: its function for writing an example, and its resources; ``engine`` is None without a model."""

    write: Write
    engine: Any
    live: int


class Synthesis(SamplingStep[AgentSpec, SynthesisSpec, SynthesisCarry]):
    """Reasoning paths of the training questions, written by a teacher (a subclass).

    It leaves no rollouts for selection: the step ``dialogues`` turns its examples into training rollouts.
    """

    settings = SynthesisSpec
    carry = SynthesisCarry

    def check(self, spec: SynthesisSpec, questions: Sequence[Question]) -> None:
        """Raise a UserError if the teacher does not support the settings or questions; by default accept all."""

    @abstractmethod
    def teaching(self, round: Round) -> AbstractContextManager[Teaching]:
        """Open the teacher."""

    def sample(self, round: Round) -> SamplingOutcome[SynthesisCarry]:
        run, spec = round.run, round.settings
        questions = drawn(run.questions("train"), spec.questions, run.seed)
        check_unit(spec.unit, medium_of(run.environment), questions)
        self.check(spec, questions)
        agent = run.agent
        limits = Limits(agent.prompts, agent.sub_questions, agent.iteration_limit)
        opened = partial(self.teaching, round)
        examples, seconds = synthesise(
            round.folder, questions, opened, limits=limits, share=own_share(), attempts=spec.attempts
        )
        if self.asks_model(run, spec):  # the rules take the dataset's evidence if it gives any
            warn_of_tau(examples, spec.tau)
        kept = write_outcome(round.folder, examples)
        write_json(round.folder / AGENT, agent.model_dump(mode="json"))
        figures = table(examples, seconds, spec.tau)
        carry = SynthesisCarry(phase=round.phase, examples=digest_records(kept))
        return SamplingOutcome([], [question.id for question in questions], carry, figures=figures, seconds=seconds)


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def drawn(questions: Sequence[Question], count: int | None, seed: int) -> list[Question]:
    """Draw questions by a seed, in their original order; a larger draw keeps a smaller one."""
    if count is None or count >= len(questions):
        return list(questions)
    order = list(range(len(questions)))
    random.Random(f"synthesis {seed}").shuffle(order)
    return [questions[place] for place in sorted(order[:count])]


def open_similarity(run: RunContext[Any]) -> tuple[Similarity, str]:
    """Load the encoder that compares sub-answers with evidence; return it with its digest.

    Raises:
        UserError: the recipe leaves the encoder to a retriever service.
    """
    from platform_sdk.retrieval.load import load_encoder

    settings = run.retrieval.encoder_settings()
    if settings["name"] is None:
        raise UserError("retrieval.encoder: synthesis compares texts itself; name the encoder beside retrieval.url")
    encoder = load_encoder(**settings)
    return Similarity(encoder), encoder.digest


def synthesise(
    folder: Path,
    questions: Sequence[Question],
    teaching: Callable[[], AbstractContextManager[Teaching]],
    *,
    limits: Limits,
    share: Share,
    attempts: int = 1,
) -> tuple[list[Example], float]:
    """Write the missing examples of a phase; return all, checked and in the order of the questions, and the seconds.

    Args:
        teaching: opens the teacher; it is not opened if nothing is missing.
        attempts: most attempts at a question; the first path that passes every check is kept, else the last.

    Raises:
        EndOfShare: in every process but the first, when all shares are done.
    """
    path = folder / DRAFTS
    if share.first:
        _collect(path)
    share.wait()
    done = {example.id: example for example in (read_log(path, Example) if path.exists() else ())}
    missing = [question for question in questions if question.id not in done]
    clock = _Clock(folder / "drafts.seconds.json")
    made: list[Example] = []
    if missing:
        own = path if share.count == 1 else path.with_name(f"drafts.share{share.index}.jsonl")
        todo = share.of(missing)
        with AppendLog(own, Example) as log, teaching() as teacher, _bar(len(todo), share) as bar:
            clock.start()
            agents = [partial(_attempted, teacher.write, question, attempts, limits) for question in todo]
            for example in run_agents(agents, teacher.engine, live=teacher.live):
                made.append(example)
                log.append(example)
                clock.tick()
                bar.update()
    done |= {example.id: example for example in share.gather(made)}
    if not share.first:
        raise EndOfShare
    examples = [done[question.id] for question in questions]
    write_log(path, Example, examples)
    for part in _parts(path):
        remove_log(part)
    return examples, clock.seconds


def _attempted(write: Write, question: Question, attempts: int, limits: Limits) -> Agent[Example]:
    """Write a question's path until it passes every check; paths written by rule alone are not retried."""
    tokens = calls = 0
    for attempt in range(attempts):
        example = judged((yield from write(question, attempt)), limits)
        asked = example.calls > 0
        tokens, calls = tokens + example.tokens, calls + example.calls
        example = example.model_copy(update={"tokens": tokens, "calls": calls, "attempts": attempt + 1})
        if example.kept or not asked:
            break
    return example


def warn_of_tau(examples: Sequence[Example], tau: float) -> None:
    """Warn if most sub-answers have no evidence above the threshold, so only their most similar piece."""
    share = share_below(examples, tau)
    if share is not None and share > 0.5:
        _LOG.warning(
            "synthesis.tau %g: no evidence is above it for %.0f %% of the sub-answers, which then have their most "
            "similar piece alone; lower synthesis.tau, take sentences (synthesis.unit), or compare with another "
            "encoder (the report shows other values)",
            tau,
            100 * share,
        )


def share_below(examples: Sequence[Example], tau: float) -> float | None:
    """Return the share of the kept sub-answers without evidence above ``tau``; None if none was compared."""
    best = [max(asked.similarities) for e in examples if e.kept for asked in e.asked() if asked.similarities]
    return sum(value <= tau for value in best) / len(best) if best else None


def _bar(total: int, share: Share) -> Any:
    return tqdm(total=total, desc="synthesis", unit="question", disable=not share.first)


def _parts(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.stem}.share*.jsonl"))


def _collect(path: Path) -> None:
    """Merge examples of stopped processes, of any number, into ``path``."""
    if parts := _parts(path):
        files = [file for file in (path, *parts) if file.exists()]
        found = {example.id: example for file in files for example in read_log(file, Example)}
        write_log(path, Example, list(found.values()))
        for part in parts:
            remove_log(part)


class _Clock:
    """Wall time of a synthesis in seconds, over all its starts, without the start of the teacher."""

    def __init__(self, path: Path) -> None:
        self._path, self._before = path, seconds_of(path)
        self._begun: float | None = None
        self._written = 0.0

    def start(self) -> None:
        self._begun = self._written = time.monotonic()

    @property
    def seconds(self) -> float:
        return self._before + (time.monotonic() - self._begun if self._begun is not None else 0.0)

    def tick(self) -> None:
        """Save the time, at most once per second."""
        if time.monotonic() - self._written > 1:
            self._written = time.monotonic()
            write_text(self._path, json.dumps({"seconds": round(self.seconds, 3)}), durable=False)


def write_outcome(folder: Path, examples: Sequence[Example]) -> list[Example]:
    """Write the kept examples, and the rejected ones with reasons to a separate file; return the kept ones."""
    kept = [example for example in examples if example.kept]
    write_jsonl(folder / EXAMPLES, Example, kept)
    write_jsonl(folder / REJECTED, Example, [example for example in examples if not example.kept])
    return kept


def table(examples: Sequence[Example], seconds: float, tau: float) -> dict[str, Any]:
    """Return counts of kept and rejected examples, the share of sub-answers without evidence above τ, and the cost."""
    kept = sum(example.kept for example in examples)
    cost = {"tokens": sum(e.tokens for e in examples), "calls": sum(e.calls for e in examples), "seconds": seconds}
    return {
        "questions": len(examples),
        "kept": kept,
        "rejected": dict(sorted(Counter(e.rejected for e in examples if e.rejected).items())),
        "answer_in_question": sum(map(in_question, examples)),
        "none_above_tau": share_below(examples, tau),
        "cost": {name: rounded(value) for name, value in cost.items()},
        "cost_per_kept": {name: rounded(value / kept) if kept else None for name, value in cost.items()},
    }
