"""Preparation of a run's ``corpus/`` folder from the recipe's ``dataset``: questions, passages, triples, digests."""

from __future__ import annotations

import hashlib
import logging
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from platform_sdk.config.code import source_file
from platform_sdk.config.dataset import HUB, DatasetSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.corpus import Corpus, TripleStore, corpus_from_questions
from platform_sdk.data.questions import load_questions
from platform_sdk.display import encodable
from platform_sdk.files import expanded, read_model, read_object, write_text
from platform_sdk.record_files import RecordError, digest_file, digest_records, write_jsonl
from platform_sdk.records import Passage, Question, Triple
from platform_sdk.run_dir import RunDir

log = logging.getLogger(__name__)

PASSAGES, TRIPLES = Path(RunDir.passages), Path(RunDir.triples)


class PreparedData(Struct):
    """Content of ``corpus/digests.json``.

    Attributes:
        input: digest of the specification and of the content of every file it names.
        train: digest of the training questions.
        eval: digest of the evaluation questions.
        passages: digest of the corpus, part of the retrieval collection's name.
        triples: digest of the triple store.
        counts: numbers of ``train``, ``eval``, ``passages``, ``triples``, and ``skipped`` records.
        skipped: the message of each skipped malformed record.
    """

    input: str
    train: str
    eval: str
    passages: str
    triples: str
    counts: dict[str, int]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory."""

    train: list[Question]
    eval: list[Question]
    corpus: Corpus
    triples: TripleStore
    skipped: tuple[str, ...] = ()


def prepare(spec: DatasetSpec, data_dir: Path | None, workdir: Path) -> PreparedData:
    """Write ``workdir/corpus/`` and return its digests; do nothing if it already has the same input's.

    ``digests.json`` is written last, so an incomplete folder of a killed process is written again.

    Raises:
        UserError: a path is relative and there is no data directory, or a file is missing.
        RecordError: a file is malformed.
    """
    marker = RunDir(workdir).corpus_digests
    source = input_digest(spec, data_dir)
    if marker.is_file():
        found = read_model(marker, PreparedData)
        if found.input == source:
            _warn_of_skipped(found, marker)
            return found
        marker.unlink()
    dataset = load_dataset(spec, data_dir)
    write_jsonl(RunDir(workdir).questions("train"), Question, dataset.train)
    write_jsonl(RunDir(workdir).questions("eval"), Question, dataset.eval)
    dataset.corpus.save(workdir / PASSAGES)
    dataset.triples.save(workdir / TRIPLES)
    prepared = PreparedData(
        input=source,
        train=digest_records(dataset.train),
        eval=digest_records(dataset.eval),
        passages=dataset.corpus.digest,
        triples=dataset.triples.digest,
        counts={
            "train": len(dataset.train),
            "eval": len(dataset.eval),
            "passages": len(dataset.corpus.passages),
            "triples": len(dataset.triples.triples),
            "skipped": len(dataset.skipped),
        },
        skipped=tuple(map(encodable, dataset.skipped)),
    )
    write_text(marker, prepared.model_dump_json(indent=2) + "\n")
    _warn_of_skipped(prepared, marker)
    return prepared


def _warn_of_skipped(prepared: PreparedData, marker: Path) -> None:
    if prepared.skipped:
        log.warning(
            "dataset.skip_invalid: skipped %d malformed records, the first because of %s (%s lists all)",
            len(prepared.skipped), prepared.skipped[0], marker,
        )  # fmt: skip


def load_dataset(spec: DatasetSpec, data_dir: Path | None) -> Dataset:
    """Load or generate the dataset of ``spec``, with its questions sampled to the requested numbers.

    Raises:
        UserError: as :func:`prepare`.
        RecordError: a file is malformed.
    """
    if spec.format == "world":
        return _world(spec)
    if spec.format == "mixed":
        return _mixed([load_dataset(part, data_dir) for part in spec.mixture], _corpus(spec, data_dir))
    labels = locate(spec.labels, data_dir) if spec.labels else None
    loaded = {
        part: [
            load_questions(locate(path, data_dir), spec.format, skip_invalid=spec.skip_invalid, labels=labels)
            for path in paths
        ]
        for part, paths in (("train", spec.train), ("eval", spec.eval))
    }
    train, eval_ = (_united(part, [file.questions for file in files]) for part, files in loaded.items())
    stores = [TripleStore.load(locate(path, data_dir)) for path in spec.triples]
    triples = TripleStore(triple for store in stores for triple in store.triples)
    return Dataset(
        _with_fewer_passages(_drawn(train, spec.train_questions, f"train {spec.seed}", spec.train_skip), spec),
        _with_fewer_passages(_drawn(eval_, spec.eval_questions, f"eval {spec.seed}"), spec),
        _corpus(spec, data_dir) or corpus_from_questions([*train, *eval_]),
        triples,
        tuple(message for files in loaded.values() for file in files for message in file.skipped),
    )


def _corpus(spec: DatasetSpec, data_dir: Path | None) -> Corpus | None:
    """Return the corpus that ``spec`` names, or None."""
    return _joined([Corpus.load(locate(path, data_dir)) for path in spec.corpus]) if spec.corpus else None


def _mixed(parts: list[Dataset], corpus: Corpus | None) -> Dataset:
    """Concatenate the parts; a question's id must be unique among all of them."""
    return Dataset(
        _united("train", [part.train for part in parts]),
        _united("eval", [part.eval for part in parts]),
        corpus or _joined([part.corpus for part in parts]),
        TripleStore(triple for part in parts for triple in part.triples.triples),
        tuple(message for part in parts for message in part.skipped),
    )


def read_corpus(workdir: Path) -> Corpus:
    """Return the passages after comparing them with the recorded digest."""
    digest = digest_file(workdir / PASSAGES, Passage)
    _check_digest(workdir, "passages", digest)
    return Corpus.load(workdir / PASSAGES, digest)


def read_triples(workdir: Path) -> TripleStore:
    """Return the triples after comparing them with the recorded digest."""
    triples = TripleStore.load(workdir / TRIPLES)
    _check_digest(workdir, "triples", triples.digest)
    return triples


def check_prepared(workdir: Path) -> tuple[str, str]:
    """Return the recorded digests of passages and triples after checking the files, without reading them into memory.

    Raises:
        UserError: a file was altered.
    """
    passages, triples = workdir / PASSAGES, workdir / TRIPLES
    digests = digest_file(passages, Passage), digest_file(triples, Triple)
    _check_digest(workdir, "passages", digests[0])
    _check_digest(workdir, "triples", digests[1])
    return digests


def _check_digest(workdir: Path, part: str, found: str) -> None:
    marker = RunDir(workdir).corpus_digests
    expected = read_object(marker).get(part) if marker.exists() else None
    if expected is not None and expected != found:
        raise UserError(
            f"{marker.with_name(part)}.jsonl has digest {found[:16]}…, but {expected[:16]}… was prepared: the file was "
            "changed; prepare the data again in a new run directory"
        )


def locate(path: str, data_dir: Path | None) -> Path:
    """Return the file for a ``path`` in a recipe.

    Raises:
        UserError: the path is relative without a ``data_dir``, does not exist, or cannot be fetched from the hub.
    """
    if path.startswith(HUB):
        return _from_hub(path)
    given = expanded(path, "dataset")
    remedy = ""
    if not given.is_absolute():
        if data_dir is None:
            raise UserError(
                f"dataset: {path} is relative to data_dir, which is not set; "
                "give it with --set data_dir=DIR or the environment variable HOPFORGE_DATA",
                code="dataset.no-data-dir",
            )
        given, remedy = data_dir / given, "; check --set data_dir=DIR or HOPFORGE_DATA"
    if not os.path.isfile(given):  # unlike Path.is_file, False also for a name that is too long
        raise UserError(f"dataset: there is no file {given}{remedy}", code="dataset.no-file")
    return given


def _from_hub(path: str) -> Path:
    owner, _, rest = path.removeprefix(HUB).partition("/")
    name, _, file = rest.partition("/")
    if not (owner and name and file):
        raise UserError(f"dataset: {path} should read {HUB}OWNER/NAME/FILE")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(f"{owner}/{name}", file, repo_type="dataset"))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(f"dataset: {path} could not be fetched from the hub: {error}") from error


def _world(spec: DatasetSpec) -> Dataset:
    from platform_sdk.data.world import generate

    world = generate(spec.world or WorldSpec())
    return Dataset(
        _drawn(world.train, spec.train_questions, f"train {spec.seed}", spec.train_skip),
        _drawn(world.eval, spec.eval_questions, f"eval {spec.seed}"),
        Corpus(world.passages),
        TripleStore(world.triples),
    )


def _drawn(questions: list[Question], count: int | None, seed: str, skip: int = 0) -> list[Question]:
    """Return ``count`` questions drawn by ``seed``, in their original order, after the first ``skip`` of the draw.

    A larger draw keeps a smaller one, so a draw of ``n`` and one that leaves out ``n`` share no question.
    """
    if count is None and not skip:
        return questions
    if skip > len(questions):
        raise UserError(f"dataset: train_skip leaves out {skip} questions, but there are {len(questions)}; lower it")
    if count is not None and skip + count > len(questions):
        left = f", of which {skip} are left out (train_skip)" if skip else ""
        raise UserError(
            f"dataset: {count} questions are requested, but there are {len(questions)}{left}; lower the number"
        )
    order = list(range(len(questions)))
    random.Random(seed).shuffle(order)
    return [questions[number] for number in sorted(order[skip:] if count is None else order[skip : skip + count])]


def _with_fewer_passages(questions: list[Question], spec: DatasetSpec) -> list[Question]:
    """Keep the gold passages of each context, and others drawn by seed and question, in their order."""
    count = spec.context_passages
    return questions if count is None else [_with_context(question, count, spec.seed) for question in questions]


def _with_context(question: Question, count: int, seed: int) -> Question:
    gold = question.gold_positions
    others = [place for place in range(len(question.context)) if place not in gold]
    drawn = random.Random(f"context {seed} {question.id}").sample(others, min(len(others), max(0, count - len(gold))))
    kept = sorted([*gold, *drawn])
    starts = question.context_sentences
    return question.model_copy(
        update={
            "context": tuple(question.context[place] for place in kept),
            "context_sentences": tuple(starts[place] for place in kept) if starts else (),
        }
    )


def _joined(corpora: list[Corpus]) -> Corpus:
    """Merge corpora; several corpora are renumbered, since the ids of each start from 0."""
    if len(corpora) == 1:
        return corpora[0]
    distinct = dict.fromkeys((p.title, p.text) for corpus in corpora for p in corpus.passages)
    return Corpus([Passage(id=str(i), title=title, text=text) for i, (title, text) in enumerate(distinct)])


def _united(part: str, files: list[list[Question]]) -> list[Question]:
    """Return the concatenated questions of several files."""
    questions = [question for file in files for question in file]
    if len({question.id for question in questions}) < len(questions):
        again = next(id_ for id_, count in Counter(question.id for question in questions).items() if count > 1)
        raise RecordError(f"dataset.{part}: question {again} is in more than one file")
    return questions


def dataset_files(spec: DatasetSpec, data_dir: Path | None) -> Iterator[tuple[str, Path]]:
    """Yield the dataset's own files with their use: training, evaluation, passages, triples or labels."""
    for part in spec.mixture:
        yield from dataset_files(part, data_dir)
    labels = (spec.labels,) if spec.labels else ()
    uses = {
        "training": spec.train, "evaluation": spec.eval, "passages": spec.corpus, "triples": spec.triples,
        "labels": labels,
    }  # fmt: skip
    for use, paths in uses.items():
        for path in paths:
            yield use, locate(path, data_dir)


def input_digest(spec: DatasetSpec, data_dir: Path | None) -> str:
    """Digest the specification and the content of its files."""
    content = spec.model_dump_json(exclude={"licence": True, "mixture": {"__all__": {"licence"}}})
    sha = hashlib.sha256(f"{Question.SCHEMA} {content}".encode())
    for part in spec.mixture:
        sha.update(input_digest(part, data_dir).encode())
    if "." in spec.format:
        source = source_file(spec.format)  # of a user-defined format, which may change
        if source is None:
            raise UserError(
                f"dataset.format {spec.format}: no source of this module on the Python path; set PYTHONPATH"
            )
        sha.update(source.read_bytes())
    labels = (spec.labels,) if spec.labels else ()
    for path in (*spec.train, *spec.eval, *spec.corpus, *spec.triples, *labels):
        with locate(path, data_dir).open("rb") as stream:
            sha.update(hashlib.file_digest(stream, "sha256").digest())
    return sha.hexdigest()
