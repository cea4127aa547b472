"""Layout of a run directory: the names of its files and folders, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import overload

START_EVALUATION, FINAL_EVALUATION = "eval-start", "eval-final"
"""Phases that evaluate the model before and after the training."""


class Entry:
    """A file or folder: its name as an attribute of the class, its path as an attribute of an instance."""

    def __init__(self, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, folder: None, kind: type) -> str: ...
    @overload
    def __get__(self, folder: RunDir | PhaseDir, kind: type) -> Path: ...
    def __get__(self, folder: RunDir | PhaseDir | None, kind: type) -> str | Path:
        return self.name if folder is None else folder.path / self.name


@dataclass(frozen=True)
class PhaseDir:
    """Folder of a phase, e.g. of an iteration or an evaluation."""

    path: Path

    begun = Entry("begun.json")
    rollouts = Entry("rollouts.jsonl")
    candidates = Entry("candidates.jsonl")
    examples = Entry("examples.jsonl")
    rejected = Entry("rejected.jsonl")
    agent = Entry("agent.json")
    sample = Entry("sample.json")
    selected = Entry("selected.jsonl")
    figures = Entry("figures.json")
    statistics = Entry("statistics.json")
    training_steps = Entry("steps.jsonl")
    checkpoints = Entry("checkpoints")
    train = Entry("train.json")
    updates = Entry("updates.jsonl")
    update_rollouts = Entry("rollouts")
    prepared = Entry("prepared")  # in update_rollouts
    scores = Entry("scores.json")
    server_log = Entry("server.log")
    processes = Entry("processes")


@dataclass(frozen=True)
class RunDir:
    """Directory of a run."""

    path: Path

    recipe = Entry("recipe.json")
    plan = Entry("plan.json")
    cluster = Entry("cluster.json")
    manifest = Entry("manifest.jsonl")
    report = Entry("report.html")
    lineage = Entry("lineage.html")
    lock = Entry(".lock")
    logs = Entry("logs")
    finished_steps = Entry("logs/steps.json")
    outputs = Entry("outputs")
    done = Entry("done")
    tracking = Entry("tracking")
    run_journal = Entry("tracking/run.jsonl")
    step_journals = Entry("tracking/steps")
    environment = Entry("tracking/environment.json")
    follower_log = Entry("tracking/follower.log")
    corpus = Entry("corpus")
    corpus_digests = Entry("corpus/digests.json")
    train_questions = Entry("corpus/questions.train.jsonl")
    eval_questions = Entry("corpus/questions.eval.jsonl")
    passages = Entry("corpus/passages.jsonl")
    triples = Entry("corpus/triples.jsonl")
    index = Entry("index")
    service = Entry("index/service.json")
    graph = Entry("graph")

    def phase(self, name: str) -> PhaseDir:
        """Return the folder of a phase."""
        return PhaseDir(self.path / name)

    def questions(self, part: str) -> Path:
        """Return the file of the questions to train on (``train``) or to evaluate on (``eval``)."""
        return {"train": self.train_questions, "eval": self.eval_questions}[part]

    def log(self, step: str) -> Path:
        """Return the log of a step."""
        return self.logs / f"{step}.log"
