"""Facts about a model from manifests and files: origins, training runs, scores and licences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from platform_sdk.config.struct import Struct
from platform_sdk.data.licences import UNKNOWN
from platform_sdk.errors import UserError
from platform_sdk.files import REMEDY, read_object
from platform_sdk.lineage.graph import Graph, Node
from platform_sdk.lineage.terms import canonical
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question
from platform_sdk.run_dir import PhaseDir
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.opened import RECIPE, STARTED

TRAINED = ("model", "selection", "rollouts")


class TrainingRun(Struct):
    """A run that the model stands on: who, when, with what, and the seconds and GPU hours of its steps."""

    run: str
    recipe: str
    pipeline: str
    origin: dict[str, str]
    started: str
    ended: str
    steps: tuple[str, ...]
    seconds: float
    gpu_hours: float


class Score(Struct):
    """A score of the model with its interval; None if the metric has none."""

    phase: str
    questions: int
    metric: str
    value: float
    low: float | None
    high: float | None


class Licensed(Struct):
    """Licence and revision of a dataset or a base model; ``source`` names the statement of the licence."""

    thing: str
    licence: str
    source: str
    revision: str = UNKNOWN


class ModelFacts(Struct):
    """Facts about a model. ``unread`` are files that are needed and do not exist."""

    model: Node
    roots: tuple[Node, ...]
    runs: tuple[TrainingRun, ...]
    scores: tuple[Score, ...]
    licences: tuple[Licensed, ...]
    unread: tuple[str, ...]


def model_facts(model: str, graph: Graph, folder: Path) -> ModelFacts:
    """Return the facts about a model of the graph.

    Args:
        model: The digest of its weights.
        graph: The graph of the runs in ``folder``.
        folder: The folder of the run directories.

    Raises:
        UserError: a recipe or a file of scores is damaged or was altered.
    """
    part = graph.reachable([model], down=False)
    evaluated = evaluations(model, graph)
    runs = list(dict.fromkeys(edge.run for edge in part.edges if part.nodes[edge.target].kind.startswith(TRAINED)))
    runs = runs or list(part.nodes[model].runs[:1])  # a base model: the run that evaluated it
    recipes = {run: _recipe(folder / run / RECIPE) for run in runs}
    roots = tuple(part.nodes[digest] for digest, origins in part.neighbours(down=False).items() if not origins)
    licences = sorted(_licences(runs, recipes, roots, folder), key=lambda one: one.licence != UNKNOWN)
    unread: list[str] = []
    scores = tuple(score for node in evaluated for score in _scores(node, folder, unread))
    return ModelFacts(
        model=graph.nodes[model], roots=roots,
        runs=tuple(_run(folder / run, recipes[run]["name"], recipes[run]["pipeline"]) for run in runs),
        scores=scores, licences=tuple(dict.fromkeys(licences)), unread=tuple(unread),
    )  # fmt: skip


def _recipe(path: Path) -> dict[str, Any]:
    """Return a run's recipe with its name, pipeline and parameters."""
    recipe = read_object(path)
    parameters = recipe.get("parameters")
    names = recipe.get("name"), recipe.get("pipeline")
    if not all(isinstance(name, str) for name in names) or not isinstance(parameters, dict):
        raise UserError(f"{path}: lacks a recipe's name, pipeline or parameters, so it was altered; {REMEDY}")
    if not isinstance(parameters.get("dataset") or {}, dict):
        raise UserError(f"{path}: parameters.dataset: is not an object, so it was altered; {REMEDY}")
    return recipe


def _licences(
    runs: list[str], recipes: dict[str, dict[str, Any]], roots: Iterable[Node], folder: Path
) -> Iterator[Licensed]:
    """Yield the licences that the manifests record; ``unknown`` for runs without such a record, e.g. older ones."""
    recorded: list[Licensed] = []
    for run in runs:
        own = [
            Licensed(thing=one.thing, licence=canonical(one.licence), source=one.source, revision=one.revision)
            for entry in seals.last_entries(manifest.read(folder / run)).values()
            for one in entry.licences
        ]
        recorded += own
        if not any(one.thing.startswith("dataset ") for one in own):
            dataset = recipes[run]["parameters"].get("dataset") or {}
            parts = dataset.get("mixture") or [dataset]
            yield from (_unrecorded(f"dataset {part.get('format', UNKNOWN)}") for part in parts)
    yield from recorded
    if not any(one.thing.startswith("model ") for one in recorded):
        bases = [node.names[0] for node in roots if node.kind == "model" and node.names]
        yield from (_unrecorded(f"model {name}") for name in bases)


def _unrecorded(thing: str) -> Licensed:
    return Licensed(thing=thing, licence=UNKNOWN, source="no record")


def evaluations(model: str, graph: Graph) -> list[Node]:
    """Return the scores of a model."""
    found = [edge.target for edge in graph.edges if edge.source == model]
    return [graph.nodes[digest] for digest in dict.fromkeys(found) if graph.nodes[digest].kind == "scores"]


def read_questions(nodes: Iterable[Node], folder: Path, unread: list[str]) -> list[Question]:
    """Return the questions of nodes; the name of a node without an existing file is added to ``unread``."""
    paths = [path for node in nodes if (path := _existing(node, folder, unread))]
    return [question for path in paths for question in read_jsonl(path, Question)]


def _run(run_dir: Path, recipe: str, pipeline: str) -> TrainingRun:
    entries = manifest.read(run_dir)
    start = next((entry for entry in reversed(entries) if entry.event == STARTED), entries[0])
    last = seals.last_entries(entries)
    used = [entry.used for entry in last.values()]
    return TrainingRun(
        run=run_dir.name, recipe=recipe, pipeline=pipeline, origin=start.origin, started=entries[0].time,
        ended=entries[-1].time if entries[-1].event.startswith(seals.ENDED) else "", steps=tuple(last),
        seconds=round(sum(float(one.get("seconds", 0.0)) for one in used), 3),
        gpu_hours=round(sum(float(one.get("gpu_hours", 0.0)) for one in used), 6),
    )  # fmt: skip


def _existing(node: Node, folder: Path, unread: list[str]) -> Path | None:
    """Return the first file of a node that exists; if none does, add its name to ``unread``."""
    found = next((folder / name for name in node.names if (folder / name).is_file()), None)
    if found is None:
        unread += node.names[:1]
    return found


def _scores(node: Node, folder: Path, unread: list[str]) -> Iterator[Score]:
    path = _existing(node, folder, unread)
    if path is None:
        return
    content = read_object(path)
    try:
        metrics = content["metrics"]
        for name in content.get("shown") or metrics:
            if (score := metrics.get(name)) is not None:
                yield Score(
                    phase=node.names[0].removesuffix(f"/{PhaseDir.scores}"), questions=content["n"], metric=name,
                    value=score["value"], low=score.get("low"), high=score.get("high"),
                )  # fmt: skip
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        raise UserError(f"{path}: a field is missing or invalid, so it was altered; {REMEDY}") from error
