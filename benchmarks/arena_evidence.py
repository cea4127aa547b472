"""The passages that ARENA's answers name and quote, in a study's finished runs, as a table in Markdown.

In percent, of the first seed's sampled and greedy answers. Precision and recall are the shares of the named passages
that are gold, and of the gold passages that are named, both 0 if none is named; "quoted" is the share of the passages
quoted by an explanation that are gold; "numbered" is, of the quotes followed by a number, the share with their
passage's own. Answers without quotes have no value of the last two, and a mean of fewer than 20 values is not shown.
Differences are to the study's baseline, paired by the questions with a value in both rows, with 95 % bootstrap
intervals.

    HOPFORGE_DATA=DATA python benchmarks/arena_evidence.py studies/arena-real.yaml [--folder runs]
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.graph_recall import change, interval
from benchmarks.linked_recall import row
from platform_sdk.evaluation.intervals import bootstrap_interval, paired_bootstrap
from platform_sdk.methods.arena.measures import measures
from platform_sdk.methods.arena.rewards import response_of
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question, Rollout
from platform_sdk.run_dir import FINAL_EVALUATION, START_EVALUATION, RunDir
from platform_sdk.studies.cells import state_of
from platform_sdk.studies.study import Cell, load_study

NAMED = {"precision": "evidence_precision", "recall": "evidence_recall"}
COLUMNS = (*NAMED, "quoted", "numbered")
DECODINGS = ("sampled", "greedy")  # the attempts of an evaluation
FEWEST = 20  # values of a shown mean
WORDS = 6  # of a sequence that a quote and its passage share
Values = dict[str, dict[str, float]]
"""Values by question, of each column."""


def values_of(cell: Cell) -> list[Values]:
    """Return the values of each decoding in the last evaluation."""
    spec = AgentSpec.model_validate(cell.recipe.parameters["agent"])
    folders = [RunDir(cell.run_dir).phase(name) for name in (FINAL_EVALUATION, START_EVALUATION)]
    path = next(folder.rollouts for folder in folders if folder.rollouts.is_file())
    rollouts = list(read_jsonl(path, Rollout))
    found: list[Values] = [{name: {} for name in COLUMNS} for _ in DECODINGS]
    for rollout, measured in zip(rollouts, measures(spec, None, rollouts), strict=True):
        named = {name: measured[metric] for name, metric in NAMED.items()}
        values = named | _quotes(response_of(rollout, spec), rollout.question)
        for name, value in values.items():
            found[rollout.attempt][name][rollout.question.id] = value
    return found


def _quotes(response: str, question: Question) -> dict[str, float]:
    """Return the shares of gold passages among the quoted ones, and of quotes with the right number.

    A part of the explanation up to a number in brackets quotes the passage that has most of its sequences of six
    words, at least half of them. Unlike the parser of responses, this also reads an explanation that was cut off.
    """
    passages = [_sequences(f"{passage.title} {passage.text}") for passage in question.context]
    explanation = re.search(r"<analysis>(.*?)(?:</analysis>|$)", response, re.DOTALL)
    quotes: list[tuple[int, str]] = []
    for text, number in re.findall(r"(.*?)(?:\[(\d+)\]|$)", explanation[1] if explanation else "", re.DOTALL):
        said = _sequences(text)
        shared = [len(said & passage) for passage in passages]
        if said and 2 * max(shared) >= len(said):
            quotes.append((shared.index(max(shared)), number))
    quoted, numbered = {place for place, _ in quotes}, [number == str(place + 1) for place, number in quotes if number]
    values = {}
    if quoted:
        values["quoted"] = len(quoted.intersection(question.gold_positions)) / len(quoted)
    if numbered:
        values["numbered"] = fmean(numbered)
    return values


def _sequences(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + WORDS]) for start in range(len(words) - WORDS + 1)}


def cells_of(values: Values, base: Values) -> list[str]:
    """Return each column's mean and its difference from the baseline, or nothing for the baseline itself."""
    cells = []
    for name, own in values.items():
        shared = [] if values is base else sorted(own.keys() & base[name].keys())
        scores = list(own.values())
        shown = len(own) >= FEWEST
        cells.append(interval(fmean(scores), *bootstrap_interval(scores)) if shown else "–")
        pairs = [own[id] for id in shared], [base[name][id] for id in shared]
        cells.append(change(paired_bootstrap(*pairs)) if len(shared) >= FEWEST else "")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="folder of the run directories")
    given = parser.parse_args()
    study = load_study(given.study, given.folder)
    cells = {place: study.at(place)[0] for place in study.places}
    found = {place: values_of(cell) for place, cell in cells.items() if state_of(cell).state == "finished"}
    baseline = tuple(study.document.baseline[axis] for axis in study.document.axes)
    if baseline not in found:
        missing = f"{' · '.join(baseline)} has not finished in {given.folder}"
        sys.exit(f"{given.study}: {missing}; run the study first, with the same HOPFORGE_DATA")
    print(row(" · ".join(study.document.axes), "answers", *(t for name in COLUMNS for t in (name, "difference"))))
    print(row(*["---"] * (2 + 2 * len(COLUMNS))))
    for place, decodings in found.items():
        for decoding, values, base in zip(DECODINGS, decodings, found[baseline], strict=True):
            print(row(" · ".join(place), decoding, *cells_of(values, base)))


if __name__ == "__main__":
    main()
