"""Audit of a model: origin, training, scores, verification, overlap of questions, licences."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from platform_sdk.config.struct import Struct
from platform_sdk.errors import UserError
from platform_sdk.files import read_object
from platform_sdk.lineage.graph import Graph, Node
from platform_sdk.lineage.licences import UNKNOWN, Licence, dataset_licences, model_licence
from platform_sdk.lineage.overlap import Overlap, overlap_of
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question
from platform_sdk.run_dir import PhaseDir
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.findings import Verification
from platform_sdk.tracking.opened import RECIPE, STARTED
from platform_sdk.tracking.verify import verify_run

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


class Audit(Struct):
    """Page of a model. ``unread`` are files that the audit needed and did not find."""

    target: str
    model: Node
    roots: tuple[Node, ...]
    runs: tuple[TrainingRun, ...]
    scores: tuple[Score, ...]
    verifications: tuple[Verification, ...]
    overlap: Overlap | None
    licences: tuple[Licence, ...]
    unread: tuple[str, ...]


def audit_model(target: str, starts: Iterable[str], graph: Graph, folder: Path) -> Audit:
    """Audit the model that a target names; for a run, its last trained model.

    Raises:
        UserError: the target is no model and no run with one, or a file of questions or scores is damaged.
    """
    model = _model_of(target, list(starts), graph)
    part = graph.reachable([model], down=False)
    runs = list(dict.fromkeys(edge.run for edge in part.edges if part.nodes[edge.target].kind.startswith(TRAINED)))
    evaluated = [edge for edge in graph.edges if edge.source == model and graph.nodes[edge.target].kind == "scores"]
    scores = {edge.target: graph.nodes[edge.target] for edge in evaluated}
    inputs = {edge.source for edge in graph.edges if edge.target in scores}
    training = [node for node in part.nodes.values() if "training questions" in node.kind]
    evaluation = [graph.nodes[digest] for digest in inputs if "evaluation questions" in graph.nodes[digest].kind]
    unread: list[str] = []
    trained_on, evaluated_on = (_questions(nodes, folder, unread) for nodes in (training, evaluation))
    recipes = {run: read_object(folder / run / RECIPE) for run in runs}
    roots = tuple(part.nodes[digest] for digest, origins in part.neighbours(down=False).items() if not origins)
    licences = [
        one for recipe in recipes.values() for one in dataset_licences(recipe["parameters"].get("dataset") or {})
    ]
    bases = [node.names[0] for node in roots if node.kind == "model" and node.names]
    licences += [model_licence(name, recipes.values()) for name in bases]
    licences.sort(key=lambda one: one.licence != UNKNOWN)
    return Audit(
        target=target, model=graph.nodes[model], roots=roots,
        runs=tuple(_run(folder / run, str(recipes[run]["name"]), str(recipes[run]["pipeline"])) for run in runs),
        scores=tuple(score for node in scores.values() for score in _scores(node, folder, unread)),
        verifications=tuple(verify_run(folder / run) for run in runs),
        overlap=overlap_of(trained_on, evaluated_on) if trained_on and evaluated_on else None,
        licences=tuple(dict.fromkeys(licences)), unread=tuple(unread),
    )  # fmt: skip


def _model_of(target: str, starts: list[str], graph: Graph) -> str:
    models = [digest for digest in starts if graph.nodes[digest].kind == "model"]
    if len(models) == 1:
        return models[0]
    run = Path(target).name  # of a run's directory too
    trained = [edge.target for edge in graph.edges if edge.run == run and graph.nodes[edge.target].kind == "model"]
    if not trained:
        raise UserError(
            f"{target}: neither a model nor a run that trained one; name a run, or a model's digest or path"
        )
    return trained[-1]


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


def _questions(nodes: Iterable[Node], folder: Path, unread: list[str]) -> list[Question]:
    paths = [path for node in nodes if (path := _existing(node, folder, unread))]
    return [question for path in paths for question in read_jsonl(path, Question)]


def _scores(node: Node, folder: Path, unread: list[str]) -> Iterable[Score]:
    path = _existing(node, folder, unread)
    if path is None:
        return
    content = read_object(path)
    metrics = content["metrics"]
    for name in content.get("shown") or metrics:
        if (score := metrics.get(name)) is not None:
            yield Score(
                phase=node.names[0].removesuffix(f"/{PhaseDir.scores}"), questions=content["n"], metric=name,
                value=score["value"], low=score.get("low"), high=score.get("high"),
            )  # fmt: skip
