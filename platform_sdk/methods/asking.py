"""A question put to the agent of a finished run, which answers as in an evaluation, and the record of how."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import msgspec

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.data.corpus import Corpus
from platform_sdk.data.dataset import PASSAGES, TRIPLES
from platform_sdk.data.files import read_json_lines
from platform_sdk.display import near_names, shortened
from platform_sdk.errors import UserError
from platform_sdk.files import whole_lines
from platform_sdk.methods.finished import FinishedRun
from platform_sdk.methods.method import AnyMethod, RunContext
from platform_sdk.processes.environment import visible_gpus
from platform_sdk.record_files import parse_line, read_jsonl
from platform_sdk.records import Passage, Question, Rollout, Triple
from platform_sdk.retrieval.index import load_material, method_of
from platform_sdk.run_dir import RunDir
from platform_sdk.sampling.load import load_engine
from platform_sdk.sampling.rollout import run as play

_WORD = re.compile(r"\w+")
UNKNOWN = "unknown"
"""Placeholder for the unknown answer of the asker's question; rewards that depend on it mean nothing."""


class PassageLine(msgspec.Struct):
    """A line of a file of passages; other fields are ignored."""

    title: str
    text: str


@dataclass(frozen=True)
class AnswerAttempt:
    """The agent's attempt at a question.

    ``known`` is true for a question of the run's dataset, whose answers are known. ``notes`` lists choices made for the
    user, e.g. the entity from which the search starts.
    """

    rollout: Rollout
    known: bool
    notes: tuple[str, ...]


def ask(
    run: FinishedRun, text: str, *, temperature: float = 0.0, seed: int = 0, entities: Sequence[str] = (),
    passages: Path | None = None,
) -> AnswerAttempt:  # fmt: skip
    """Let the run's agent answer a question.

    Args:
        entities: where the search in a knowledge graph starts; by default entities that the question names.
        passages: a JSONL file of ``title`` and ``text``, for agents that do not search; by default passages of the
            run's corpus that share words with the question.

    Raises:
        UserError: the question lacks an input of the agent; the run's index is missing; or see ``load_engine``.
    """
    step = run.evaluated
    notes: list[str] = []
    engine = engine_here(step.engine, notes)
    method = step.loaded
    retrieval = retrieval_here(method.unchecked_context(step).retrieval)
    step = step.model_copy(
        update={
            "seed": seed,
            "sampling": step.sampling | {"engine": engine.model_dump(mode="json")},
            "retrieval": retrieval.model_dump(mode="json"),
        }
    )
    context = step.context
    _require_index(method, context)
    question, known = _question(method, context, text, entities, passages, notes)
    evaluation = method.evaluation_settings.model_validate(step.evaluation | {"temperature": temperature})
    with closing(load_engine(engine, step.model)) as loaded:
        if run.weights and loaded.weight_version != run.weights:
            raise UserError(f"{step.model}: holds other weights than the run evaluated; run the recipe again")
        with method.resources(context) as resources:
            policy = Policy(loaded.tokenizer, loaded.weight_version)
            agent = method.agent(context, policy, "ask", resources, evaluation)
            [rollout] = play([partial(agent.rollout, question, 0)], loaded, live=1)
    return AnswerAttempt(rollout, known, tuple(notes))


def engine_here(spec: EngineSpec, notes: list[str]) -> EngineSpec:
    """Return the recipe's engine, or Transformers on the CPU if this machine lacks what that engine needs."""
    vllm = spec.engine == "vllm" or spec.brings_server
    if spec.engine == "openai" and not spec.brings_server:
        return spec
    if (spec.device != "cpu" and not visible_gpus()) or (vllm and importlib.util.find_spec("vllm") is None):
        notes.append(f"sampled by transformers on the CPU, since this machine lacks what {spec.engine} needs")
        return EngineSpec(live=1, threads=spec.threads, max_model_len=spec.max_model_len)
    kept = spec.model_dump() | {"live": min(spec.live, 16), "processes": None, "gpus": None}
    return EngineSpec.model_validate(kept | ({"engine": "vllm"} if vllm else {}))


def retrieval_here(spec: RetrievalSpec) -> RetrievalSpec:
    """Return the recipe's retrieval, with the encoder on the CPU if this machine has no GPU."""
    missing = spec.device.startswith("cuda") and not visible_gpus()
    return spec.model_copy(update={"device": "cpu"}) if missing else spec


def _require_index(method: AnyMethod, run: RunContext[Any]) -> None:
    folder = RunDir(run.run_dir).index
    if not method.searches or run.retrieval.url is not None or run.retrieval.uri is not None or folder.exists():
        return
    if load_material(method_of(run.environment, run.retrieval), run.run_dir, run.retrieval)[0].texts():
        raise UserError(f"{folder}: the run's index is missing; repeat the run's hopforge run, which rebuilds it")


def _question(
    method: AnyMethod, run: RunContext[Any], text: str, entities: Sequence[str], passages: Path | None, notes: list[str]
) -> tuple[Question, bool]:
    """Return the question with the agent's inputs, and whether it is one of the run's questions."""
    own = next(_same_questions(run.run_dir, text), None)
    if own is not None and not entities and passages is None:
        return own, True
    example = next(_questions(run.run_dir, "eval"), None)
    question = Question(id="asked", text=text, answers=(UNKNOWN,), dataset=example.dataset if example else "hotpotqa")
    if not text.strip():
        raise UserError("the question is empty")
    if entities and not method.searches:
        raise UserError(f"--entity is for knowledge graphs, but {method.name}'s agents search nothing; leave it out")
    if passages is not None and method.searches:
        raise UserError(f"--passages is for agents with given passages, but {method.name}'s searches")
    if not method.searches:
        given = read_passages(passages) if passages else _nearest(run.run_dir, text, example, notes)
        return question.model_copy(update={"context": given}), False
    needed = method_of(run.environment, run.retrieval).scope
    if "question_id" in needed:
        raise UserError(f"environment {run.environment} searches a question's own passages: ask one of the run's")
    if entities and "head" not in needed:
        raise UserError(f"--entity is for knowledge graphs, but environment {run.environment} is not one; leave it out")
    if "head" in needed:
        _require_known(run.run_dir, entities)
        start = tuple(entities) or _named(run.run_dir, text)
        if not start:
            raise UserError(f"{text!r} names no entity of the run's graph; name the start with --entity NAME")
        notes.append(f"the search starts from {', '.join(start)}")
        question = question.model_copy(update={"topic_entities": start})
    return question, False


def _questions(run_dir: Path, part: str) -> Iterator[Question]:
    path = RunDir(run_dir).questions(part)
    return read_jsonl(path, Question) if path.is_file() else iter(())


def _same_questions(run_dir: Path, text: str) -> Iterator[Question]:
    """Yield the run's questions of this text; only lines that hold it are parsed, since files are large."""
    wanted = json.dumps(text.strip(), ensure_ascii=False)[1:-1].encode()
    for path in (RunDir(run_dir).questions(part) for part in ("eval", "train")):
        for number, line in enumerate(whole_lines(path)[0], start=1):
            if (
                number > 1
                and wanted in line
                and (found := parse_line(path, number, line, Question)).text.strip() == text.strip()
            ):
                yield found


def _require_known(run_dir: Path, entities: Sequence[str]) -> None:
    """Raise a UserError if the run's triples have no entity of one of these names or ids."""
    if not entities:
        return
    known = {
        name
        for triple in read_jsonl(run_dir / TRIPLES, Triple)
        for name in (triple.head, triple.tail, triple.head_id, triple.tail_id)
    }
    if missing := [entity for entity in entities if entity not in known]:
        raise UserError(
            f"--entity {shortened(missing[0])}: the run's graph has no such entity{near_names(missing[0], known)}"
        )


def _named(run_dir: Path, text: str) -> tuple[str, ...]:
    """Return the entities of the run's triples named in the text, in its order, without names inside another one."""
    names = {name for triple in read_jsonl(run_dir / TRIPLES, Triple) for name in (triple.head, triple.tail)}
    found = {
        name: place.start()
        for name in sorted(names)
        if (place := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE))
    }
    longest = [name for name in found if not any(name != other and name in other for other in found)]
    return tuple(sorted(longest, key=found.__getitem__))


def _nearest(run_dir: Path, text: str, example: Question | None, notes: list[str]) -> tuple[Passage, ...]:
    """Return the corpus's passages that share the most and rarest words with the text, as many as questions have."""
    count = len(example.context) if example else 0
    if not count:
        return ()
    corpus = Corpus.load(run_dir / PASSAGES).passages
    words = [set(_WORD.findall(f"{passage.title} {passage.text}".lower())) for passage in corpus]
    frequency = Counter(word for one in words for word in one)
    asked = set(_WORD.findall(text.lower()))
    shared = [sum(log(len(corpus) / frequency[word]) for word in asked & one) for one in words]
    best = sorted(range(len(corpus)), key=lambda place: (-shared[place], place))[:count]
    notes.append(f"its {count} passages are those of the run's corpus that share most words with it")
    return tuple(corpus[place] for place in best)


def read_passages(path: Path) -> tuple[Passage, ...]:
    """Read passages from JSONL of ``title`` and ``text``.

    Raises:
        RecordError: the file cannot be read, or a line is malformed.
    """
    lines = enumerate(read_json_lines(path, PassageLine))
    return tuple(Passage(id=str(number), title=line.title, text=line.text) for number, line in lines)
