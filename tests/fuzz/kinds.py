"""The kinds of inputs: what is mutated, and what reads it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from ruamel.yaml import YAML as Ruamel

from platform_sdk.cli.metrics import metrics
from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.dataset import FORMATS
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.data.questions import load_questions
from platform_sdk.evaluation.report.trace import sections
from platform_sdk.methods.arena.grammar import parse, well_formed
from platform_sdk.methods.arena.scoring import score_file
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.methods.mygo.grammar import Malformed, parse_planner, parse_worker
from platform_sdk.record_files import digest_records, header, read_jsonl
from platform_sdk.records import Passage, Question, Record, Triple
from tests.fuzz.mutations import BYTES, YAML, dump, dump_lines, mutate_bytes, mutate_tree
from tests.fuzz.workers import Input

HOME = Path(__file__).parents[2]
REAL = Path(os.environ.get("HOPFORGE_DATA", HOME / "../shared/data"))
OFFICIAL = tuple(FORMATS)[1:]
"""Formats that ``hopforge metrics`` scores: all but plain JSONL, whose questions have no official script."""
LINES = ("musique", "nq", "jsonl")
TABLES = {"popqa": "\t", "bamboogle": ","}
KEYS = {"qald10": "questions", "triviaqa": "Data"}
OVERRIDES = [
    "iterations=3", "seed=1", "selection.attempts=4", "training.learning_rate=1e-5", "dataset.world.entities=240",
    "sampling.temperature=0.5", "model=x", "agent={top_k: 3}", "dataset.world.hops=[1, 2]",
]  # fmt: skip


def recipe(rng: Random) -> Input:
    """A shipped recipe."""
    path = rng.choice([path for path in sorted(HOME.glob("pipelines/*/*.yaml")) if path.name != "pipeline.yaml"])
    pipeline = path.parent.name
    data = _yaml(path, rng)

    def run(folder: Path) -> bool:
        return _accept(folder / "recipe.yaml")

    return Input({"recipe.yaml": data}, run, ("recipe.yaml", f"{pipeline}/pipeline.yaml"))


def pipeline(rng: Random) -> Input:
    """A shipped pipeline, under an untouched recipe."""
    folder = HOME / "pipelines" / rng.choice(("arena", "arena-baselines", "mygo", "mygo-grpo"))
    choice = rng.choice([path for path in sorted(folder.glob("*.yaml")) if path.name != "pipeline.yaml"] or [None])
    if choice is None:
        choice = HOME / "pipelines/mygo/world-grpo.yaml"
    lines = choice.read_text().splitlines()
    untouched = "\n".join("pipeline: ./pipeline.yaml" if line.startswith("pipeline:") else line for line in lines)
    files = {"pipeline.yaml": _yaml(folder / "pipeline.yaml", rng), "recipe.yaml": untouched.encode()}
    return Input(files, lambda where: _accept(where / "recipe.yaml"))


def override(rng: Random) -> Input:
    """A ``--set``."""
    text = mutate_bytes(rng.choice(OVERRIDES).encode(), rng, [*BYTES, *YAML]).decode(errors="surrogateescape")
    return Input({}, lambda folder: _accept(HOME / "pipelines/mygo/world.yaml", text), ("--set", "pipeline.yaml"))


def cluster(rng: Random) -> Input:
    """The shipped description of a cluster."""
    data = _yaml(HOME / "pipelines/cluster.yaml", rng)
    return Input({"cluster.yaml": data}, lambda folder: bool(read_as(ClusterSpec, folder / "cluster.yaml")))


def _accept(path: Path, *overrides: str) -> bool:
    loaded = load_recipe(path, overrides)
    assert len(json.dumps(loaded.resolved(), allow_nan=False)) < 2**20
    json.dumps(loaded.resolved(), ensure_ascii=False).encode()
    return True


def _yaml(path: Path, rng: Random) -> bytes:
    if rng.random() < 0.5:
        return dump(mutate_tree(Ruamel(typ="safe", pure=True).load(path.read_text()), rng), indent=1)
    return mutate_bytes(path.read_bytes(), rng, [*BYTES, *YAML, *YAML])


def dataset(rng: Random) -> Input:
    """Questions in an official format."""
    format = rng.choice(tuple(FORMATS))
    data = _questions(format, rng)
    skip = rng.random() < 0.5

    def run(folder: Path) -> bool:
        loaded = load_questions(folder / "questions.json", format, skip_invalid=skip)
        records = _count(data, format)
        assert records is None or len(loaded.questions) + len(loaded.skipped) == records, "a record is lost"
        digest_records(loaded.questions)
        return True

    return Input({"questions.json": data}, run)


def _count(data: bytes, format: str) -> int | None:
    """Count a file's records; None where this cannot be told."""
    if format in ("musique", "nq") and not data.lstrip().startswith(b"["):
        return sum(bool(line.strip()) for line in data.split(b"\n"))
    if format in TABLES:
        return None  # a quoted field may hold line breaks
    try:
        tree = json.loads(data)
        return len(tree[KEYS[format]] if format in KEYS else tree)
    except (ValueError, RecursionError):
        return None


def records(rng: Random) -> Input:
    """A file of the project's own records, an official corpus, or a table of triples."""
    kinds: list[tuple[type[Record], list[Any]]] = [
        (Passage, [{"id": str(n), "title": f"T{n}", "text": f"Text é {n}."} for n in range(4)]),
        (Triple, [{"head": "a", "relation": "r", "tail": f"t{n}"} for n in range(4)]),
        (Question, [{"id": str(n), "text": "?", "answers": ["a"], "dataset": "nq", "hops": n} for n in range(4)]),
    ]
    kind, trees = rng.choice(kinds)
    match rng.randrange(3):
        case 0:
            rows = [b"head\trelation\ttail\thead_id\ttail_id", *(b"a\tr\tt%d\tQ1\tQ%d" % (n, n) for n in range(5))]
            data = mutate_bytes(b"\n".join(rows) + b"\n", rng)
            return Input({"triples.tsv": data}, lambda folder: bool(TripleStore.load(folder / "triples.tsv").digest))
        case 1:
            data = _mutated_lines(kinds[0][1], rng)
            return Input({"corpus.jsonl": data}, lambda folder: bool(Corpus.load(folder / "corpus.jsonl").digest))
    data = header(kind).encode() + b"\n" + _mutated_lines(trees, rng)
    if rng.random() < 0.2:
        data = mutate_bytes(data, rng)
    return Input({"records.jsonl": data}, lambda f: bool(digest_records(read_jsonl(f / "records.jsonl", kind))))


def predictions(rng: Random) -> Input:
    """Make the input of ``hopforge metrics``: a gold file and predictions, one of them mutated."""
    format = rng.choice(OFFICIAL)
    trees = _real(format)[:6] if rng.random() < 0.5 and _real(format) else _generated(format)
    lines = format in ("musique", "nq", "popqa", "bamboogle")
    gold = _file(format, trees)
    tree = _predictions(format, trees)
    data = dump_lines(tree) if lines else dump(tree)
    if rng.random() < 0.25:
        gold = _questions(format, rng)
    elif rng.random() < 0.5:
        data = mutate_bytes(data, rng)
    else:
        data = dump_lines(mutate_list(tree, rng)) if lines else dump(mutate_tree(tree, rng))
    as_json = rng.random() < 0.5

    def run(folder: Path) -> bool:
        metrics(format, folder / "gold.json", folder / "predictions.json", None, as_json, True, False, 0)
        return True

    return Input({"gold.json": gold, "predictions.json": data}, run)


def responses(rng: Random) -> Input:
    """Make the input of ``hopforge score``."""
    trees = _generated("hotpotqa")
    lines = [{"id": tree["_id"], "response": _completion(rng)} for tree in trees]
    gold, data = dump(trees), _mutated_lines(lines, rng)
    if rng.random() < 0.2:
        gold = _questions("hotpotqa", rng)

    def run(folder: Path) -> bool:
        for scored in score_file(AgentSpec(), folder / "gold.json", folder / "responses.jsonl"):
            json.dumps(scored, allow_nan=False)
        return True

    return Input({"gold.json": gold, "responses.jsonl": data}, run)


def completions(rng: Random) -> Input:
    """A model's text, for both grammars and the report."""
    text = mutate_bytes(_completion(rng).encode(), rng).decode(errors=rng.choice(("replace", "surrogateescape")))

    def run(_: Path) -> bool:
        found = [
            parse_planner(text, "text", candidates=3, max_questions=4),
            parse_planner(text, "kg", candidates=3, max_questions=4),
        ]
        found += [parse_worker(text, "text", materials=3), parse_worker(text, "kg", materials=3)]  # type: ignore[list-item]
        read = [well_formed(text, form) for form in ("three_part", "think", "direct")]
        for form in ("three_part", "think", "direct"):
            parse(text, form)
        sections(text)
        return any(read[:2]) or not all(isinstance(action, Malformed) for action in found)

    return Input({}, run)


def _completion(rng: Random) -> str:
    text = rng.choice((
        "<think>a</think><search>who?</search> <search>when?</search>", "<think>a</think>\n<answer>Paris</answer>",
        '<think>a</think><action>Search([0], "who?") Search([2], "when?")</action>',
        "<think>a</think><select>[0][2]</select><sentence>Yes.</sentence>",
        "<relevance>[2,5]</relevance><analysis>see [2]</analysis><answer>Ann Lee</answer>",
        "<think>a</think><answer>Ann Lee</answer>",
    ))  # fmt: skip
    if rng.random() < 0.3:
        piece = rng.choice((
            "<search>x</search>", "<search>", "<think>", "<a>", "[1", "[0]", " ", "\n", 'Search([1], "x") ', "Search(",
            'Search([1],"', "</search>", "1,", "<sentence>", "9",
        ))  # fmt: skip
        text = text.replace("who?", piece * 50_000).replace("a</think>", f"a</think>{piece * 50_000}", rng.randrange(2))
    return text


def mutate_list(trees: list[Any], rng: Random) -> list[Any]:
    """Return the trees of a file of lines after a mutation of all together, as a list again."""
    mutated = mutate_tree(trees, rng)
    return mutated if isinstance(mutated, list) else [mutated]


def _mutated_lines(trees: list[Any], rng: Random) -> bytes:
    return dump_lines(mutate_list(trees, rng)) if rng.random() < 0.5 else mutate_bytes(dump_lines(trees), rng)


def _questions(format: str, rng: Random) -> bytes:
    trees = _generated(format) if rng.random() < 0.5 or not _real(format) else _real(format)[:6]
    if format in TABLES or rng.random() < 0.5:
        return mutate_bytes(_file(format, trees), rng)
    if format in LINES:
        return dump_lines(mutate_list(trees, rng))
    return dump(mutate_tree({KEYS[format]: trees} if format in KEYS else trees, rng))


def _file(format: str, trees: list[Any]) -> bytes:
    """Return the file of a format's records."""
    if format in TABLES:
        text = io.StringIO()
        rows = csv.DictWriter(text, trees[0], delimiter=TABLES[format])
        rows.writeheader()
        rows.writerows(trees)
        return text.getvalue().encode()
    if format in LINES:
        return dump_lines(trees)
    return dump({KEYS[format]: trees} if format in KEYS else trees)


def _generated(format: str) -> list[Any]:
    return [_record(format, n) for n in range(4)]


def _record(format: str, n: int) -> Any:
    context = [[f"T{i}", [f"Text é {i}.", " More."]] for i in range(3)]
    hotpot = {
        "_id": f"q{n}", "question": f"Who {n}?", "answer": "Ann Lee", "supporting_facts": [["T1", 0], ["T2", 1]],
        "context": context, "type": "bridge",
    }  # fmt: skip
    match format:
        case "hotpotqa":
            return hotpot
        case "2wikimultihopqa":
            return hotpot | {"evidences": [["a", "r", "b"]], "evidences_id": [["Q1", "r", "Q2"]], "answer_id": "Q2"}
        case "musique":
            paragraphs = [
                {"idx": i, "title": f"T{i}", "paragraph_text": "Text.", "is_supporting": i < 2} for i in range(3)
            ]
            step = {"question": "?", "answer": "a", "paragraph_support_idx": 0}
            return {
                "id": f"2hop__{n}", "question": "?", "answer": "a", "answer_aliases": ["b"], "answerable": True,
                "question_decomposition": [step, step], "paragraphs": paragraphs,
            }  # fmt: skip
        case "nq":
            return {"question": f"who {n}", "answer": ["a", "b"]}
        case "triviaqa":
            answer = {"Value": "Ann", "Aliases": ["Ann", "Anna"], "NormalizedAliases": ["ann", "anna"]}
            return {"QuestionId": f"tc_{n}", "Question": f"who {n}", "Answer": answer}
        case "popqa":
            return {"id": n, "prop": "author", "question": f"who {n}", "possible_answers": '["Ann", "Anna"]'}
        case "bamboogle":
            return {"Question": f"who {n}", "Answer": "Ann"}
        case "jsonl":
            passages = [{"title": f"T{i}", "text": "Text."} for i in range(2)]
            return {"id": f"q{n}", "question": f"who {n}", "answers": ["a"], "passages": passages, "gold": ["T1"]}
    binding = {"type": "uri", "value": f"http://www.wikidata.org/entity/Q{n}"}
    return {
        "id": str(n), "question": [{"language": "en", "string": "Who?"}], "query": {"sparql": "SELECT"},
        "answers": [{"results": {"bindings": [{"result": binding}]}}],
    }  # fmt: skip


def _predictions(format: str, trees: list[Any]) -> Any:
    match format:
        case "hotpotqa" | "2wikimultihopqa":
            ids = [tree["_id"] for tree in trees]
            found: dict[str, Any] = {"answer": dict.fromkeys(ids, "Ann"), "sp": {i: [["T1", 0]] for i in ids}}
            return found | ({"evidence": {i: [["a", "r", "b"]] for i in ids}} if format == "2wikimultihopqa" else {})
        case "musique":
            more = {"predicted_answer": "a", "predicted_support_idxs": [0, 1]}
            return [{"id": tree["id"], **more} for tree in trees]
        case "nq":
            return [{"question": tree["question"], "prediction": "a"} for tree in trees]
        case "bamboogle":
            return [{"question": tree["Question"], "prediction": "a"} for tree in trees]
        case "popqa":
            return [{"id": tree["id"], "prediction": "a"} for tree in trees]
        case "triviaqa":
            return {tree["QuestionId"]: "a" for tree in trees}
    return {str(tree["id"]): ["Q1"] for tree in trees}


_FILES = {
    "hotpotqa": "hotpotqa/hotpot_dev.json", "2wikimultihopqa": "2wikimultihopqa/dev.json",
    "musique": "musique/musique_ans_dev.jsonl", "nq": "nq/NQ-open.dev.sample.jsonl",
    "qald10": "qald10/qald_10_dev.json",
}  # fmt: skip


@cache
def _real(format: str) -> list[Any]:
    """The first records of a real file; none where there is no such file."""
    path = REAL / _FILES.get(format, "")
    if not path.is_file():
        return []
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()[:6]]
    tree = json.loads(path.read_text())
    found: list[Any] = (tree["questions"] if format == "qald10" else tree)[:6]
    return found


KINDS: dict[str, Callable[[Random], Input]] = {
    kind.__name__: kind
    for kind in (recipe, pipeline, override, cluster, dataset, records, predictions, responses, completions)
}
