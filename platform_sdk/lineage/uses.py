"""Uses of a question or a passage: models that learned from it, retrieved it in training, or were evaluated on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from platform_sdk.config.struct import Struct
from platform_sdk.errors import UserError
from platform_sdk.evaluation.answers import normalize_squad
from platform_sdk.files import REMEDY, open_regular, sha256
from platform_sdk.lineage.graph import Graph
from platform_sdk.lineage.products import products_of, sources_of
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.listing import run_dirs

LEARNED = (PhaseDir.update_rollouts, PhaseDir.prepared)


class _Question(msgspec.Struct):
    id: str
    text: str


class _Source(msgspec.Struct):
    passage: str


class _Evidence(msgspec.Struct):
    kind: str
    id: str
    source: _Source | None = None


class _Turn(msgspec.Struct):
    evidence: list[_Evidence] = []


class _Trajectory(msgspec.Struct):
    turns: list[_Turn]
    use: str = "training"


class _Rollout(msgspec.Struct):
    """The part of a rollout that is searched."""

    question: _Question
    main: _Trajectory
    others: list[_Trajectory] = []


class _Prepared(msgspec.Struct):
    """The part of a prepared group that is searched."""

    rollouts: list[_Rollout]


class Use(Struct):
    """Records of one file with a question or passage.

    ``relation`` is ``learned from``, ``sampled in training`` or ``evaluated on``. ``model`` is the digest of the model
    that was trained, that sampled, or that was evaluated (after an evaluation between its updates, the trained one);
    ``successors`` are the models trained from it.
    """

    relation: str
    run: str
    step: str
    file: str
    records: int
    questions: tuple[str, ...]
    model: str
    successors: tuple[str, ...] = ()


class Uses(Struct):
    """Uses in all runs of a folder; ``unread`` are record files that no longer exist."""

    uses: tuple[Use, ...]
    unread: tuple[str, ...]


def find_uses(folder: Path, graph: Graph, *, question: str = "", passage: str = "") -> Uses:
    """Return the uses of a question (by id or text) or of a passage (by id), from the rollouts of all runs.

    Texts are compared after the normalisation of the metrics. The files are streamed.

    Raises:
        UserError: a file of rollouts was altered.
    """
    uses, unread = [], []
    for run_dir in run_dirs(folder):
        entries = seals.last_entries(manifest.read(run_dir))
        recorded = {run_dir / name: digest for entry in entries.values() for name, digest in entry.files.items()}
        for relation, step, path, model in _record_files(run_dir, entries):
            if not path.is_file():
                unread.append(str(path))
                continue
            if sha256(path) != recorded.get(path):
                raise UserError(f"{path}: was altered after step {step}, so its records show nothing; {REMEDY}")
            found = [one for one in _read(path) if _matches(one, question, passage)]
            if not found:
                continue
            texts = tuple(dict.fromkeys(f"{one.question.id}: {one.question.text}" for one in found))
            later = graph.models_from(model) if relation == "learned from" else ()
            uses.append(
                Use(
                    relation=relation, run=run_dir.name, step=step, file=str(path.relative_to(run_dir)),
                    records=len(found), questions=texts, model=model, successors=tuple(later),
                )
            )  # fmt: skip
    return Uses(uses=tuple(uses), unread=tuple(unread))


def _record_files(run_dir: Path, last: Mapping[str, manifest.Entry]) -> Iterator[tuple[str, str, Path, str]]:
    """Yield relation, step, file and model of each file of rollouts that a run sealed."""
    for step, entry in last.items():
        kind, _, phase = step.partition("-")
        read = [one.digest for one in sources_of(step, entry, None) if one.kind == "model"]
        made = [one.digest for one in products_of(step, entry) if one.kind == "model"]
        if kind == "train" and made:
            yield "learned from", step, RunDir(run_dir).phase(phase).selected, made[0]
        for name in entry.files:
            path = Path(name)
            if kind in ("sample", "eval") and read and path.name == PhaseDir.rollouts:
                relation = "evaluated on" if kind == "eval" else "sampled in training"
                yield relation, step, run_dir / path, read[0]
            elif kind == "online" and made and path.parent.name in LEARNED and path.suffix == ".jsonl":
                yield "learned from", step, run_dir / path, made[0]
            elif kind == "online" and made and path.name == PhaseDir.rollouts:  # an evaluation between updates
                yield "evaluated on", step, run_dir / path, made[0]


def _read(path: Path) -> Iterator[_Rollout]:
    """Yield the rollouts of a file; of a file of prepared groups, those with branches, which their own file lacks."""
    kind: type[_Prepared] | type[_Rollout] = _Prepared if path.parent.name == PhaseDir.prepared else _Rollout
    decoder = msgspec.json.Decoder(kind)
    with open_regular(path) as stream:
        next(stream, None)  # the header
        for number, line in enumerate(stream, start=2):
            try:
                found = decoder.decode(line)
                if isinstance(found, _Prepared):
                    yield from (one for one in found.rollouts if any(each.use == "branch" for each in one.others))
                else:
                    yield found
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise UserError(f"{path}:{number}: not a rollout ({error}); {REMEDY}") from error


def _matches(rollout: _Rollout, question: str, passage: str) -> bool:
    if question:
        own = rollout.question
        return own.id == question or normalize_squad(own.text) == normalize_squad(question)
    turns = (turn for trajectory in (rollout.main, *rollout.others) for turn in trajectory.turns)
    return any(_is_of(one, passage) for turn in turns for one in turn.evidence)


def _is_of(evidence: _Evidence, passage: str) -> bool:
    source = evidence.source.passage if evidence.source else None
    return source == passage or (evidence.kind == "passage" and evidence.id == passage)
