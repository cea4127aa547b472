"""Recall of ``passages``, ``lexical`` and ``linked`` on real questions, as tables in Markdown.

Each set's questions search its whole corpus. A gold passage of HotpotQA and 2WikiMultihopQA is found by its title, of
MuSiQue and NQ by the exact passage, and of MuSiQue's development questions by title, too. Questions whose gold passages
are not in the corpus are left out. Differences are paired by question, with 95 % bootstrap intervals.

``--split dev`` compares the methods on development questions. ``--split train`` compares them on the questions on which
the settings were chosen, as written and with another case: in lower case, or, since NQ's questions are in lower case,
with capital letters for the words that its corpus capitalises within sentences.

    HOPFORGE_DATA=DATA OMP_NUM_THREADS=1 python benchmarks/linked_recall.py --split dev [--workdir DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.data.corpus import Corpus
from platform_sdk.evaluation.intervals import paired_bootstrap
from platform_sdk.records import Passage
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.names import Cases
from platform_sdk.sampling.rollout import SearchRequest

KS = (2, 5, 10)
METHODS = ("passages", "lexical", "linked")
BATCH = 64


@dataclass(frozen=True)
class Query:
    """A question's text and the keys of its gold passages: ids or titles."""

    text: str
    gold: frozenset[str]


@dataclass(frozen=True)
class Questions:
    """A row of a table: its name, the folder of its corpus, its queries, and the key of a passage."""

    name: str
    folder: str
    queries: Sequence[Query]
    key: Callable[[Passage], str]


def by_id(passage: Passage) -> str:
    return passage.id


def by_title(passage: Passage) -> str:
    return passage.title


class Data:
    """The files of the sets, in the folder ``HOPFORGE_DATA``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.corpora = {
            folder: [Passage(**record) for record in self.lines(f"{folder}/corpus.jsonl")]
            for folder in ("hotpotqa", "2wikimultihopqa", "musique", "nq")
        }
        self.ids = {(p.title, p.text): p.id for folder in ("musique", "nq") for p in self.corpora[folder]}

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.root / name).read_text().splitlines()]

    def questions(self, name: str, folder: str, queries: Sequence[Query], key: Callable[[Passage], str]) -> Questions:
        known = set(map(key, self.corpora[folder]))
        return Questions(name, folder, [query for query in queries if query.gold and query.gold <= known], key)

    def titled(self, name: str, folder: str, file: str) -> Questions:
        """Return the questions of a file of HotpotQA or 2WikiMultihopQA."""
        records = json.loads((self.root / folder / file).read_text())
        queries = [Query(r["question"], frozenset(title for title, _ in r["supporting_facts"])) for r in records]
        return self.questions(name, folder, queries, by_title)

    def musique(self, name: str, file: str, key: Callable[[Passage], str]) -> Questions:
        queries = [
            Query(r["question"], frozenset(self.key_of(p, key) for p in r["paragraphs"] if p["is_supporting"]))
            for r in self.lines(f"musique/{file}")
        ]
        return self.questions(name, "musique", queries, key)

    def parts(self, name: str, file: str) -> Questions:
        """Return the one-hop parts of MuSiQue's questions, with the answers of earlier parts in place of ``#1``."""
        queries = []
        for record in self.lines(f"musique/{file}"):
            answers: list[str] = []
            for step in record["question_decomposition"]:
                text = step["question"].replace(" >> ", " ")
                for number, answer in enumerate(answers, 1):
                    text = text.replace(f"#{number}", answer)
                answers.append(step["answer"])
                gold = record["paragraphs"][step["paragraph_support_idx"]]
                queries.append(Query(text, frozenset({self.key_of(gold, by_id)})))
        return self.questions(name, "musique", queries, by_id)

    def nq(self, name: str, split: str) -> Questions:
        queries = [
            Query(r["question"], frozenset(self.ids.get((c["title"], c["text"]), "") for c in r["ctxs"] if c["isgold"]))
            for r in self.lines(f"nq/nq_gold_passages.{split}.jsonl")
        ]
        return self.questions(name, "nq", queries, by_id)

    def key_of(self, paragraph: dict[str, Any], key: Callable[[Passage], str]) -> str:
        """Return a paragraph's title, or the id of the passage with the same title and text."""
        title = str(paragraph["title"])
        return title if key is by_title else self.ids.get((title, paragraph["paragraph_text"]), "")


def lowered(questions: Questions, name: str) -> Questions:
    queries = [Query(query.text.lower(), query.gold) for query in questions.queries]
    return Questions(name, questions.folder, queries, questions.key)


def capitalised(questions: Questions, name: str, corpus: Sequence[Passage]) -> Questions:
    inner = Cases.of(passage.text for passage in corpus).inner

    def written(text: str) -> str:
        return re.sub(r"\w+", lambda word: word[0].capitalize() if word[0] in inner else word[0], text)

    queries = [Query(written(query.text), query.gold) for query in questions.queries]
    return Questions(name, questions.folder, queries, questions.key)


def recall(questions: Questions, corpus: Sequence[Passage], method: str, folder: Path) -> dict[int, list[float]]:
    """Return each query's recall at each k; the index stays in ``folder``."""
    if not (folder / "corpus/passages.jsonl").exists():
        Corpus(corpus).save(folder / "corpus/passages.jsonl")
    passages = {passage.id: passage for passage in corpus}
    scores: dict[int, list[float]] = {k: [] for k in KS}
    with open_retriever("own-text", folder, RetrievalSpec(method=method, threads=1), show_progress=False) as retriever:
        for at in range(0, len(questions.queries), BATCH):
            batch = questions.queries[at : at + BATCH]
            results = retriever.search([SearchRequest(query.text) for query in batch], max(KS))
            for query, found in zip(batch, results, strict=True):
                keys = [questions.key(passages[evidence.id]) for evidence in found]
                for k in KS:
                    scores[k].append(len(query.gold.intersection(keys[:k])) / len(query.gold))
    return scores


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def means(scores: dict[int, list[float]]) -> list[str]:
    return [f"{100 * sum(values) / len(values):.1f}" for values in scores.values()]


def differences(scores: dict[int, list[float]], base: dict[int, list[float]]) -> list[str]:
    found = [paired_bootstrap(scores[k], base[k]) for k in KS]
    return [
        f"{100 * d.difference:+.1f} ({100 * d.low:.1f} to {100 * d.high:.1f})".replace("-0.0", "0.0") for d in found
    ]


def development(data: Data) -> list[Questions]:
    return [
        data.titled("HotpotQA", "hotpotqa", "hotpot_dev.json"),
        data.titled("2WikiMultihopQA", "2wikimultihopqa", "dev.json"),
        data.musique("MuSiQue, exact paragraphs", "musique_ans_dev.jsonl", by_id),
        data.musique("MuSiQue, by title", "musique_ans_dev.jsonl", by_title),
        data.nq("NQ, questions in lower case", "dev"),
    ]


def training(data: Data) -> list[Questions]:
    hotpot = data.titled("HotpotQA", "hotpotqa", "hotpot_train.json")
    wiki = data.titled("2WikiMultihopQA", "2wikimultihopqa", "train.json")
    musique = data.musique("MuSiQue", "musique_ans_train.jsonl", by_id)
    nq = data.nq("NQ, in lower case", "train")
    return [
        hotpot, lowered(hotpot, "HotpotQA, in lower case"),
        wiki, lowered(wiki, "2WikiMultihopQA, in lower case"),
        musique, lowered(musique, "MuSiQue, in lower case"),
        data.parts("one-hop parts of MuSiQue's questions", "musique_ans_train.jsonl"),
        nq, capitalised(nq, "NQ, with capitals", data.corpora["nq"]),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=["dev", "train"], default="dev")
    parser.add_argument("--workdir", type=Path, help="folder in which indices are kept (default: a temporary folder)")
    given = parser.parse_args()
    data = Data(Path(os.environ["HOPFORGE_DATA"]))
    print(row("questions", "method", *(f"recall@{k}" for k in KS)))
    print(row("---", "---", *["---:"] * len(KS)))
    with TemporaryDirectory() as temporary:
        for questions in development(data) if given.split == "dev" else training(data):
            corpus = data.corpora[questions.folder]
            folder = (given.workdir or Path(temporary)) / questions.folder
            scores = {method: recall(questions, corpus, method, folder) for method in METHODS}
            for number, method in enumerate(METHODS):
                name = "" if number else f"{questions.name}, {len(questions.queries)}"
                print(row(name, f"`{method}`", *means(scores[method])), flush=True)
            print(
                row("", "difference of `linked` from `passages`", *differences(scores["linked"], scores["passages"])),
                flush=True,
            )


if __name__ == "__main__":
    main()
