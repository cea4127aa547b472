"""Tracking of a step: figures, curves, scores, inputs, models, files. This module does not import mlflow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.data.terms import Terms
from platform_sdk.files import read_object, sha256
from platform_sdk.tracking.assessments import RewardSources
from platform_sdk.tracking.journal import DIGEST, Journal
from platform_sdk.tracking.manifest import Input, Job
from platform_sdk.tracking.usage import DIGITS, GPU_HOURS, USED, gpu_hours_of_step

PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib"})


@dataclass
class StepRun:
    """Tracked step of a run. Repeated calls with the same content are deduplicated."""

    run_dir: Path
    name: str
    _journal: Journal
    digests: dict[str, str] = field(default_factory=dict)
    sealed: list[Path] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    licences: list[Terms] = field(default_factory=list)

    def seal(self, *paths: Path) -> None:
        """Declare files, and folders of files, as the step's results; at its end their digests go into the manifest.

        Later steps, repeated runs and reports compare these digests (``seals.check``).
        """
        self.sealed += paths

    def record_digests(self, **digests: str) -> None:
        """Record full digests of inputs and outputs as tags and in the step's manifest entry."""
        self.digests.update(digests)
        self._journal.append("tags", tags={f"{DIGEST}{name}": value for name, value in digests.items()})

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Log settings of this step."""
        self._journal.append("params", params={name: str(value) for name, value in params.items()})

    def log_metrics(self, metrics: Mapping[str, float], *, iteration: int = 0) -> None:
        """Log figures of this step and of the whole run, at ``iteration`` on the axis of steps."""
        self._journal.append(
            "metrics", metrics={name: float(value) for name, value in metrics.items()}, iteration=iteration
        )

    def record_gpu_hours(self, source: str, hours: float) -> None:
        """Record the GPU-hours that a process or a job of this step has used so far, by its name."""
        self._journal.append(USED, source=source, gpu_hours=round(hours, DIGITS))

    def record_job(self, job: Job) -> None:
        """Record what a job of this step has used so far, by its UID."""
        self._journal.append(USED, source=job.uid, gpu_hours=job.gpu_hours, job=job.model_dump(mode="json"))

    def record_licences(self, tag: str, terms: Iterable[Terms]) -> None:
        """Record the revisions and licences of datasets or base models in the step's manifest entry.

        Args:
            tag: Tag of the step and of the run with the licences.
            terms: The recorded terms.
        """
        found = tuple(dict.fromkeys(terms))
        self.licences += found
        text = ", ".join(f"{one.thing.partition(' ')[2]} {one.licence}" for one in found)
        self._journal.append("tags", tags={f"hopforge.{tag}": text}, of_run=True)

    def log_gpu_hours(self) -> float:
        """Log the GPU-hours of all attempts of this step, unless there were no GPUs; return them."""
        hours = gpu_hours_of_step(self._journal.path)
        if hours:
            self._journal.append("metrics", metrics={GPU_HOURS: hours}, iteration=0, step_only=True)
        return hours

    def log_figures(self, path: Path, *, iteration: int | None = None) -> None:
        """Log the numbers of a figures file (``figures.json``, ``train.json``), and the file itself.

        Nested numbers are named by their path: ``{"attempts_histogram": {"1": 5}}`` becomes
        ``attempts_histogram/1``. The default iteration is the file's.
        """
        figures = read_object(path)
        if iteration is None:
            iteration = int(figures.get("iteration", 0))
        self.log_metrics(dict(_numbers(figures)), iteration=iteration)
        self.log_artifact(path)

    def log_curve(self, points: Iterable[Mapping[str, Any]], *, axis: str, phase: str) -> None:
        """Log figures of a phase over time, e.g. at every optimiser step or update.

        A longer curve may be logged again, since points are deduplicated. If a process is killed and repeats a point,
        only its times differ. So these are a separate event, and the other figures are logged once. Metrics:
        ``PHASE/NAME`` for every number of a point, nested numbers by path as in ``log_figures``, at the point's
        position on the axis of steps.

        Args:
            points: A mapping of names to numbers, or nested mappings, for each point.
            axis: The name of the integer that orders the points: ``step``, ``update``.
            phase: The phase's folder.
        """
        for point in points:
            figures = {f"{phase}/{name}": value for name, value in _numbers(point) if name != axis}
            times = {name for name in figures if _is_time(name)}
            for names in filter(None, (figures.keys() - times, times)):
                self.log_metrics({name: figures[name] for name in names}, iteration=int(point[axis]))

    def log_scores(
        self, path: Path, *, iteration: int = 0, model: str | None = None, questions: str | None = None
    ) -> None:
        """Log the scores of an evaluation (``scores.json``) with their intervals, and the file itself.

        Metrics: ``PHASE/em``, ``PHASE/em_low``, ``PHASE/em_high``, …, ``PHASE/n``, and as ``log_score_point``.

        Args:
            path: ``PHASE/scores.json``.
            iteration: The number of previous training iterations or updates.
            model: The digest of the evaluated weights. With ``questions``, the scores are also logged on the logged
                model with that dataset, and on its registered version.
            questions: The digest of the questions.
        """
        scores = read_object(path)
        phase = scores["phase"]
        numbers: dict[str, float] = {f"{phase}/n": scores["n"]}
        for metric, score in scores["metrics"].items():
            numbers[f"{phase}/{metric}"] = score["value"]
            numbers |= {f"{phase}/{metric}_{end}": score[end] for end in ("low", "high") if end in score}
        self.log_metrics(numbers, iteration=iteration)
        self._log_score_point(scores, iteration, model, questions)
        self.log_artifact(path)

    def log_score_point(self, path: Path, *, iteration: int) -> None:
        """Log the shown scores of an evaluation as points of the run's curves ``Scores/em``, ``Scores/f1``, …."""
        self._log_score_point(read_object(path), iteration)

    def _log_score_point(
        self, scores: Mapping[str, Any], iteration: int, model: str | None = None, questions: str | None = None
    ) -> None:
        metrics = scores["metrics"]
        shown = [name for name in scores.get("shown") or metrics if name in metrics]
        self._journal.append(
            "scores",
            phase=scores["phase"],
            n=scores["n"],
            scores={name: {part: metrics[name].get(part) for part in ("value", "low", "high")} for name in shown},
            iteration=iteration,
            model=model,
            questions=questions,
        )

    def log_inputs(self, *, model: str | None = None, **datasets: Mapping[str, str]) -> None:
        """Log the inputs of this step by digest.

        Args:
            model: The digest of the weights of a base model or a trained model.
            datasets: Digests by name, grouped by use (``training``, ``evaluation``, ``retrieval``). A dataset of the
                run (``log_dataset``) is identified by digest; other datasets are named by path in the run directory.
        """
        read = [("weights", model, "model")] if model else []
        read += [(name, digest, use) for use, digests in datasets.items() for name, digest in digests.items() if digest]
        self.inputs += [Input(name=name, digest=digest, kind=kind) for name, digest, kind in read]
        self._journal.append("inputs", model=model, datasets={use: dict(digests) for use, digests in datasets.items()})

    def record_file(self, path: Path, use: str) -> None:
        """Record a dataset's own file in the step's manifest entry, by absolute path and SHA-256.

        Args:
            path: The file.
            use: The use in the dataset: training, evaluation, passages, triples or labels.
        """
        self.inputs.append(Input(name=str(path.resolve()), digest=sha256(path), kind=f"{use} file"))

    def log_note(self, text: str) -> None:
        """Set the run's description (Markdown), which replaces an earlier one."""
        self._journal.append("note", text=text)

    def log_dataset(self, name: str, *, digest: str, source: str, context: str, rows: int | None = None) -> None:
        """Log a dataset input of the run.

        Args:
            name: The name, e.g. ``questions.train``, ``passages``.
            digest: The full digest, kept as a tag and in the manifest; MLflow's dataset has 36 characters of it.
            source: The source, a path or URI.
            context: The use: ``training``, ``evaluation``, ``retrieval``.
            rows: The number of records.
        """
        self._journal.append("dataset", name=name, digest=digest, source=source, context=context, rows=rows)
        self.record_digests(**{name: digest})

    def log_base_model(self, name: str, digest: str) -> None:
        """Log the initial model of a run: its name and the digest of its weights, without its files."""
        self._journal.append("base_model", name=name, digest=digest)

    def log_model(
        self,
        path: Path,
        *,
        digest: str,
        iteration: int = 0,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log a model directory (safetensors, tokenizer, configuration) and register it under the recipe's name.

        On a local store, the files are hard-linked instead of copied if the file system supports it, so the directory
        must not be changed in place afterwards.

        Args:
            path: The model directory.
            digest: The digest of its weights.
            iteration: The number of previous iterations or updates.
            tags: Lineage of the version: base model, corpus digest, …

        Raises:
            UserError: the directory is missing, or contains pickled files, which run code when loaded.
        """
        if not path.is_dir():
            raise UserError(f"{path}: no such model directory")
        pickled = sorted(file.name for file in path.rglob("*") if file.suffix in PICKLES)
        if pickled:
            raise UserError(f"{path}: contains pickled files ({', '.join(pickled)}); save the model as safetensors")
        self._journal.append(
            "model",
            path=str(path.resolve()),
            digest=digest,
            iteration=iteration,
            register=True,
            tags=dict(tags or {}),
        )
        self.record_digests(weights=digest)

    def log_rollouts(self, path: Path, *, sources: RewardSources, limit: int = 20) -> None:
        """Log the first ``limit`` rollouts of a ``rollouts.jsonl`` as traces of their turns, retrievals and calls.

        Rewards become assessments of the traces, with their sources; gold answers become expectations.
        """
        self._journal.append(
            "rollouts", path=str(path.resolve()), phase=path.parent.name, limit=limit, sources=sources.model_dump()
        )

    def log_artifact(self, path: Path) -> None:
        """Log the current content of a small file under its path in the run directory."""
        resolved = path.resolve()
        root = self.run_dir.resolve()
        folder = str(resolved.parent.relative_to(root)) if resolved.is_relative_to(root) else "."
        digest = sha256(resolved)
        self._journal.append("artifact", path=str(resolved), folder="" if folder == "." else folder, digest=digest)


def _is_time(name: str) -> bool:
    """Return whether a figure is a duration or a speed."""
    return name.endswith(("seconds", "per_second")) or name.rpartition("/")[2].startswith("mfu")


def _numbers(value: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(inner, f"{prefix}/{name}" if prefix else str(name))
    elif isinstance(value, (int, float)):
        yield prefix, value
