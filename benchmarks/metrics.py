"""Questions per second of ``hopforge metrics`` against a straightforward reading of the definitions.

    python benchmarks/metrics.py [--questions 7405] [--rounds 7] [--data DIR]

Both sides do the whole work in one process: read the gold and the prediction file, score, and return the means
and each question's values. They take turns, so that both meet the same noise, and the outputs must agree to 9
digits before a time counts. The first round is cold for us: nothing is remembered from an earlier one (the
memory of normalised texts is emptied before *every* round).

The peer is what one writes from the definitions, question by question, in the manner of the official scripts:
``json``, a normaliser that filters characters and applies a regular expression, ``Counter`` for shared tokens. It
is also the independent oracle of the tests.

Without --data, the files are generated, with ten-paragraph contexts of the length of HotpotQA's; with it, the real
gold files below DIR are used (predictions are always made up from the gold: right, partly right, wrong, missing).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platform_sdk.evaluation import answers
from platform_sdk.evaluation.metrics import score_files, twowiki

# --- the peer: the definitions, question by question --------------------------------------------------------------

Values = dict[str, float]


def plain_normalize(text: str) -> str:
    punctuation = set(string.punctuation)
    bare = "".join(character for character in text.lower() if character not in punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def plain_em(prediction: str, gold: str) -> float:
    return 1.0 if plain_normalize(prediction) == plain_normalize(gold) else 0.0


def plain_f1(prediction: str, gold: str, rule: str = "") -> tuple[float, float, float]:
    predicted, wanted = plain_normalize(prediction), plain_normalize(gold)
    if rule == "yes/no" and predicted != wanted and ({predicted, wanted} & {"yes", "no", "noanswer"}):
        return 0.0, 0.0, 0.0
    predicted_tokens, wanted_tokens = predicted.split(), wanted.split()
    if rule == "empty agrees" and not (predicted_tokens and wanted_tokens):
        agree = float(predicted_tokens == wanted_tokens)
        return agree, agree, agree
    same = sum((Counter(predicted_tokens) & Counter(wanted_tokens)).values())
    if same == 0:
        return 0.0, 0.0, 0.0
    precision, recall = same / len(predicted_tokens), same / len(wanted_tokens)
    return 2 * precision * recall / (precision + recall), precision, recall


def plain_counts(true: int, spurious: int, missed: int) -> tuple[float, float, float, float]:
    precision = true / (true + spurious) if true + spurious else 0.0
    recall = true / (true + missed) if true + missed else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return float(spurious + missed == 0), f1, precision, recall


def plain_list_score(predicted: Iterable[Any], gold: Iterable[Any]) -> tuple[float, float, float, float]:
    predicted, gold = list(predicted), list(gold)
    true = len([entry for entry in predicted if entry in gold])
    missed = len([entry for entry in gold if entry not in predicted])
    return plain_counts(true, len(predicted) - true, missed)


def plain_named(prefix: str, scores: tuple[float, float, float, float]) -> Values:
    return dict(zip([prefix + name for name in ("em", "f1", "prec", "recall")], scores, strict=True))


def plain_joint(parts: list[tuple[float, float, float, float]]) -> Values:
    em = precision = recall = 1.0
    for part in parts:
        em, precision, recall = em * part[0], precision * part[2], recall * part[3]
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return plain_named("joint_", (em, f1, precision, recall))


def plain_hotpot(
    gold: Path, predictions: Path, evidence: bool = False, aliases: dict[str, list[str]] | None = None
) -> list[Values]:
    """HotpotQA, and with ``evidence`` 2WikiMultihopQA, whose entities have ``aliases`` by their ids."""
    aliases = aliases or {}
    predicted = json.loads(predictions.read_text(encoding="utf-8"))
    rows = []
    for question in json.loads(gold.read_text(encoding="utf-8")):
        row: Values = {}
        parts = []
        id_ = question["_id"]
        nothing = (0.0, 0.0, 0.0, 0.0)
        if id_ in predicted["answer"]:
            text = predicted["answer"][id_]
            names = [question["answer"], *aliases.get(question.get("answer_id") or "", [])]
            each = [(plain_em(text, name), *plain_f1(text, name, "yes/no")) for name in names]
            em, f1, precision, recall = (max(column) for column in zip(*each, strict=True))
            parts.append((em, f1, precision, recall))
        row |= plain_named("", parts[-1] if id_ in predicted["answer"] else nothing)
        if id_ in predicted["sp"]:
            facts = list({tuple(fact) for fact in predicted["sp"][id_]})
            wanted = list({tuple(fact) for fact in question["supporting_facts"]})
            if evidence:
                facts = [(fact[0].lower(), *fact[1:]) for fact in facts]
                wanted = [(fact[0].lower(), *fact[1:]) for fact in wanted]
            parts.append(plain_list_score(facts, wanted))
        row |= plain_named("sp_", parts[-1] if id_ in predicted["sp"] else nothing)
        if evidence:
            if id_ in predicted["evidence"]:
                triples = {plain_triple(triple) for triple in predicted["evidence"][id_]}
                golds = [plain_names(question, place, aliases) for place in range(len(question["evidences"]))]
                matches = len([triple for triple in triples if any(triple in names for names in golds)])
                _, f1, precision, recall = plain_counts(matches, len(triples) - matches, len(golds) - matches)
                parts.append((float(matches == len(triples) == len(golds)), f1, precision, recall))
            row |= plain_named("evi_", parts[-1] if id_ in predicted["evidence"] else nothing)
        complete = len(parts) == (3 if evidence else 2)
        row |= plain_joint(parts) if complete else plain_named("joint_", nothing)
        rows.append(row)
    return rows


def plain_names(question: dict[str, Any], place: int, aliases: dict[str, list[str]]) -> list[tuple[str, ...]]:
    """Every way to name the gold triple at ``place``."""
    head, relation, tail = question["evidences"][place]
    heads, tails = [head], [tail]
    if question.get("evidences_id"):  # generated questions have none
        head_id, _, tail_id = question["evidences_id"][place]
        heads, tails = heads + aliases.get(head_id, []), tails + aliases.get(tail_id, [])
    return [plain_triple([one, relation, other]) for one in heads for other in tails]


def plain_triple(triple: list[str]) -> tuple[str, ...]:
    punctuation = set(string.punctuation)
    words = ("".join(c for c in text.lower() if c not in punctuation).split() for text in triple)
    return tuple(" ".join(parts) for parts in words)


def plain_twowiki(gold: Path, predictions: Path, names: Path | None = None) -> list[Values]:
    lines = plain_lines(names) if names else []
    aliases = {line["Q_id"]: line["aliases"] + line["demonyms"] for line in lines}
    return plain_hotpot(gold, predictions, evidence=True, aliases=aliases)


def plain_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def plain_musique(gold: Path, predictions: Path) -> list[Values]:
    predicted = {line["id"]: line for line in plain_lines(predictions)}
    rows = []
    for question in plain_lines(gold):
        if question["id"] not in predicted:
            rows.append({"answer_em": 0.0, "answer_f1": 0.0, "support_f1": 0.0})
            continue
        line = predicted[question["id"]]
        golds = [question["answer"]] + question["answer_aliases"]
        indices = {int(index) for index in line["predicted_support_idxs"]}
        wanted = {paragraph["idx"] for paragraph in question["paragraphs"] if paragraph["is_supporting"]}
        rows.append(
            {
                "answer_em": max(plain_em(line["predicted_answer"], text) for text in golds),
                "answer_f1": max(plain_f1(line["predicted_answer"], text, "empty agrees")[0] for text in golds),
                "support_f1": plain_list_score(indices, wanted)[1],
            }
        )
    return rows


def plain_nq(gold: Path, predictions: Path) -> list[Values]:
    predicted = {line["question"]: line["prediction"] for line in plain_lines(predictions)}
    rows = []
    for question in plain_lines(gold):
        text = predicted.get(question["question"])
        if text is None:
            rows.append({"em": 0.0, "sub_em": 0.0, "f1": 0.0})
            continue
        rows.append(
            {
                "em": max(plain_em(text, answer) for answer in question["answer"]),
                "sub_em": float(any(plain_normalize(a) in plain_normalize(text) for a in question["answer"])),
                "f1": max(plain_f1(text, answer)[0] for answer in question["answer"]),
            }
        )
    return rows


PLAIN: dict[str, Callable[[Path, Path], list[Values]]] = {
    "hotpotqa": plain_hotpot,
    "2wikimultihopqa": plain_twowiki,
    "musique": plain_musique,
    "nq": plain_nq,
}

# --- files to score -----------------------------------------------------------------------------------------------

REAL = {
    "hotpotqa": ["hotpotqa/hotpot_train.json", "hotpotqa/hotpot_dev.json", "hotpotqa/hotpot_dev_fullwiki_extra.json"],
    "2wikimultihopqa": ["2wikimultihopqa/train.json", "2wikimultihopqa/dev.json"],
    "musique": ["musique/musique_ans_train.jsonl", "musique/musique_ans_dev.jsonl"],
    "nq": ["nq/NQ-open.train.sample.jsonl", "nq/NQ-open.dev.sample.jsonl"],
}
_SYLLABLES = [a + b for a in "bdfgklmnprstv" for b in "aeiou"]


def generated_gold(dataset: str, count: int, random_: random.Random) -> list[dict[str, Any]]:
    """Make questions of the dataset's form; names are random, so that hardly a text comes twice."""

    def words(least: int, most: int) -> str:
        size = random_.randint(least, most)
        return " ".join("".join(random_.choices(_SYLLABLES, k=3)).capitalize() for _ in range(size))

    def sentences() -> list[str]:
        return [f" The {words(8, 20)} of the {words(2, 5)}, in 19{random_.randint(10, 99)}." for _ in range(4)]

    questions: list[dict[str, Any]] = []
    for number in range(count):
        answer = random_.choice(["yes", "no", f"the {words(1, 2)}", words(1, 4), f"{words(1, 1)}, {words(2, 2)}"])
        if dataset == "nq":
            questions.append({"question": f"who {number} {words(5, 8)}", "answer": [answer, words(1, 3)]})
        elif dataset == "musique":
            paragraphs = [
                {"idx": i, "title": words(1, 3), "paragraph_text": "".join(sentences()), "is_supporting": i % 7 == 3}
                for i in range(20)
            ]
            questions.append(
                {
                    "id": f"2hop__{number}",
                    "paragraphs": paragraphs,
                    "question": words(10, 16),
                    "answer": answer,
                    "answer_aliases": [words(1, 3)] if number % 3 == 0 else [],
                    "answerable": True,
                }
            )
        else:
            context = [[words(1, 3), sentences()] for _ in range(10)]
            titles = [title for title, _ in context]
            question = {
                "_id": f"{number:024x}",
                "question": words(10, 16),
                "answer": answer,
                "supporting_facts": [[titles[1], 0], [titles[4], 1]] + ([[titles[4], 3]] if number % 3 == 0 else []),
                "context": context,
            }
            if dataset == "2wikimultihopqa":
                question["evidences"] = [[titles[1], "director", titles[4]], [titles[4], "place of birth", answer]]
            questions.append(question)
    return questions


def predictions_for(dataset: str, questions: list[dict[str, Any]], random_: random.Random) -> str:
    """Make a prediction file's text: answers right, partly right, wrong; parts shuffled, short, missing."""
    all_answers = [q["answer"] if isinstance(q["answer"], str) else random_.choice(q["answer"]) for q in questions]
    texts = []
    for answer in all_answers:
        kind = random_.random()
        if kind < 0.4:
            texts.append(answer)
        elif kind < 0.7:
            texts.append(f"The {answer}, {random_.choice(all_answers)}.")
        else:
            texts.append(random_.choice(all_answers))
    present = [random_.random() > 0.03 for _ in questions]
    pairs = [(q, text) for q, text, here in zip(questions, texts, present, strict=True) if here]
    if dataset == "nq":
        return "".join(json.dumps({"question": q["question"], "prediction": text}) + "\n" for q, text in pairs)
    if dataset == "musique":
        rows = (
            {
                "id": q["id"],
                "predicted_answer": text,
                "predicted_support_idxs": random_.sample(range(20), 2)
                + [p["idx"] for p in q["paragraphs"] if p["is_supporting"] and random_.random() < 0.7],
            }
            for q, text in pairs
        )
        return "".join(json.dumps(row) + "\n" for row in rows)
    facts = {
        q["_id"]: [f for f in q["supporting_facts"] if random_.random() < 0.8]
        + ([[q["supporting_facts"][0][0], 7]] if random_.random() < 0.4 else [])
        for q, _ in pairs
    }
    result: dict[str, Any] = {"answer": {q["_id"]: text for q, text in pairs}, "sp": facts}
    if dataset == "2wikimultihopqa":
        result["evidence"] = {
            q["_id"]: [t for t in q["evidences"] if random_.random() < 0.8] + [["x", "y", text]] for q, text in pairs
        }
    return json.dumps(result)


def write_files(dataset: str, folder: Path, data: Path | None, count: int) -> tuple[Path, Path, int]:
    """Write a gold and a prediction file; return them and the number of questions."""
    random_ = random.Random(f"{dataset} {count}")
    lines = dataset in ("musique", "nq")
    if data is None:
        questions = generated_gold(dataset, count, random_)
    else:
        files = [data / name for name in REAL[dataset]]
        questions = [q for file in files for q in (plain_lines(file) if lines else json.loads(file.read_text()))]
    gold, predictions = folder / f"{dataset}.gold", folder / f"{dataset}.predictions"
    gold.write_text("".join(json.dumps(q) + "\n" for q in questions) if lines else json.dumps(questions))
    predictions.write_text(predictions_for(dataset, questions, random_))
    return gold, predictions, len(questions)


# --- the race -----------------------------------------------------------------------------------------------------


def ours(dataset: Any, gold: Path, predictions: Path) -> tuple[dict[str, float], list[Values]]:
    answers.bag.cache_clear()
    twowiki.normalize_evidence.cache_clear()
    scores = score_files(dataset, gold, predictions)
    return scores.means(), list(scores.per_question().values())


def plain(dataset: str, gold: Path, predictions: Path) -> tuple[dict[str, float], list[Values]]:
    rows = PLAIN[dataset](gold, predictions)
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}, rows


def timed(run: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.process_time()
    result = run(*arguments)
    return time.process_time() - start, result


def assert_equal(left: tuple[Values, list[Values]], right: tuple[Values, list[Values]]) -> None:
    for a, b in zip([left[0], *left[1]], [right[0], *right[1]], strict=True):
        assert a.keys() == b.keys(), (a, b)
        assert all(abs(a[name] - b[name]) < 1e-9 for name in a), (a, b)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--questions", type=int, default=7405, help="generated questions for each dataset")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--data", type=Path, help="folder of the real data sets; default: generated files")
    options = parser.parse_args()
    print(f"{'dataset':17}{'questions':>10}{'gold MB':>9}{'plain q/s':>12}{'hopforge q/s':>14}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for dataset in PLAIN:
            gold, predictions, count = write_files(dataset, Path(folder), options.data, options.questions)
            times: dict[str, list[float]] = {"ours": [], "plain": []}
            for _ in range(options.rounds):
                seconds, expected = timed(plain, dataset, gold, predictions)
                times["plain"].append(seconds)
                seconds, found = timed(ours, dataset, gold, predictions)
                times["ours"].append(seconds)
                assert_equal(found, expected)
            best = {side: min(values) for side, values in times.items()}
            ratio = best["plain"] / best["ours"]
            size = gold.stat().st_size / 1e6
            rates = f"{count / best['plain']:12,.0f}{count / best['ours']:14,.0f}{ratio:7.1f}x"
            print(f"{dataset:17}{count:10}{size:9.1f}{rates}", flush=True)


if __name__ == "__main__":
    main()
