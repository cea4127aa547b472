"""Worth of ProGraph-R1's parts on a generated world: the world recipe with and without each, some seeds each.

    python benchmarks/prograph_curves.py WORKDIR [--world 7] [--seeds 0 1 2] [--variants full outcome] [--set K=V]
    python benchmarks/prograph_curves.py WORKDIR --table

Runs one after another in one process, all variants with one seed, then with the next. What is finished is not run
again, so the command may be killed and repeated. Corpus, graph and indexes are made once for all of them. Every run is
evaluated on all evaluation questions as it samples (the recipe's temperature, the run's seed) and greedily. ``--table``
prints what is finished: means over the seeds with 95 % bootstrap intervals over the questions, and paired differences
to ``outcome``, from which every other variant but the whole method differs in one part.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.graph import GraphSpec
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.data.dataset import prepare
from platform_sdk.evaluation.intervals import bootstrap_interval, paired_bootstrap
from platform_sdk.graph.build import build
from platform_sdk.recipes import steps
from platform_sdk.recipes.method import load_method
from platform_sdk.retrieval.index import build_index

RECIPE = Path(__file__).parents[1] / "pipelines/prograph/world.yaml"
ENVIRONMENT = "world-text"
GREEDY = EvaluationSpec()
VARIANTS: dict[str, list[str]] = {
    "full": [],
    "progress": ["agent.credit.structure_weight=0"],
    "structure": ["agent.credit.progress_weight=0", "agent.credit.estimator=null"],
    "outcome": [
        "agent.credit.progress_weight=0",
        "agent.credit.estimator=null",
        "agent.credit.structure_weight=0",
    ],
    "graph-r1": ["retrieval.method=graph_r1", "agent.credit=null"],
}
METRICS = ("em", "f1", "format", "turns", "evidence_recall")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=Path)
    parser.add_argument("--world", type=int, default=7)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--table", action="store_true", help="only print what is finished")
    arguments = parser.parse_args()
    if not arguments.table:
        for seed in arguments.seeds:
            for variant in arguments.variants:
                made = run(arguments.workdir, arguments.world, variant, seed, arguments.overrides)
                print(variant, seed, json.dumps(made), flush=True)
    print(table(arguments.workdir))


def run(workdir: Path, world: int, variant: str, seed: int, overrides: list[str]) -> dict[str, Any]:
    """Train and evaluate one variant with one seed; return its figures, also those of the untrained policy."""
    out = workdir / f"{variant}-{seed}.json"
    asked = {"world": world, "overrides": overrides}
    if out.exists():
        found = dict(json.loads(out.read_text()))
        if found.get("asked") != asked:
            raise SystemExit(f"{out}: is of {found.get('asked')}, not of {asked}; name another folder")
        return found
    recipe = load_recipe(RECIPE, [f"dataset.world.seed={world}", *overrides, *VARIANTS[variant]])
    settings = recipe.parameters
    corpus = prepare(DatasetSpec.model_validate(settings["dataset"]), None, workdir)
    build(workdir, GraphSpec.model_validate(settings["graph"]))
    searched = build_index(workdir, RetrievalSpec.model_validate(settings["retrieval"]), ENVIRONMENT).corpus_digest
    assert corpus.counts["eval"]
    method = load_method(recipe.pipeline.document.method)

    def context(seed: int, agent: dict[str, Any]) -> Any:
        return method.context(workdir, ENVIRONMENT, agent, settings["sampling"], settings["retrieval"], searched, seed)

    sampled = EvaluationSpec.model_validate(settings["evaluation"])

    def evaluated(name: str, model: str, greedy: str) -> dict[str, Any]:
        agent = {**settings["agent"], "credit": None}  # so that all variants share what the untrained policy scored
        phases = {
            "sampled": steps.evaluate(method, context(seed, agent), f"{name}-{seed}-sampled", model, sampled),
            "greedy": steps.evaluate(method, context(0, agent), f"{greedy}-greedy", model, GREEDY),
        }
        return {how: scores(Path(made.path)) for how, made in phases.items()}

    start = f"start-{settings['retrieval']['method']}"
    before = evaluated(start, settings["model"], start)
    began, clock = time.monotonic(), time.process_time()
    phase, online = f"{variant}-{seed}", OnlineSpec.model_validate(settings["online"])
    trained = steps.online(method, context(seed, settings["agent"]), phase, settings["model"], online, sampled)
    seconds = {"wall": time.monotonic() - began, "cpu": time.process_time() - clock}
    made = {
        "before": before,
        "after": evaluated(f"end-{variant}", trained.model, f"end-{phase}"),
        "seconds": seconds,
        "asked": asked,
    }
    out.write_text(json.dumps(made))
    return made


def scores(path: Path) -> dict[str, list[float]]:
    """Return the metrics of each question of an evaluation."""
    questions = json.loads(path.read_text())["per_question"]
    return {metric: [each[metric] for each in questions.values()] for metric in METRICS}


def table(workdir: Path) -> str:
    """Return a row for each variant and way to decode, in Markdown."""
    found: dict[str, list[dict[str, Any]]] = {}
    for variant in VARIANTS:
        if paths := sorted(workdir.glob(f"{variant}-[0-9]*.json")):
            found[variant] = [json.loads(path.read_text()) for path in paths]
    lines = ["| variant | decoding | EM before | EM after | each seed | Δ to outcome | F1 | turns | recall | CPU s |",
             "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for variant, runs in found.items():
        for how in ("sampled", "greedy"):

            def mean(when: str, metric: str, runs: list[dict[str, Any]] = runs, how: str = how) -> Any:
                return np.mean([each[when][how][metric] for each in runs], axis=0)

            plain = found.get("outcome", [])
            difference = "–"
            if variant != "outcome" and len(plain) == len(runs):
                pair = paired_bootstrap(list(mean("after", "em")), list(mean("after", "em", plain)), seed=0)
                difference = f"{100 * pair.difference:+.1f} [{100 * pair.low:+.1f}, {100 * pair.high:+.1f}]"
            cells = [
                variant, how, interval(mean("before", "em")), interval(mean("after", "em")),
                " ".join(f"{100 * np.mean(each['after'][how]['em']):.1f}" for each in runs), difference,
                f"{100 * mean('after', 'f1').mean():.1f}", f"{mean('after', 'turns').mean():.2f}",
                f"{mean('after', 'evidence_recall').mean():.2f}",
                f"{np.mean([each['seconds']['cpu'] for each in runs]):.0f}",
            ]  # fmt: skip
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def interval(values: Any) -> str:
    low, high = bootstrap_interval(list(values), seed=0)
    return f"{100 * values.mean():.1f} [{100 * low:.1f}, {100 * high:.1f}]"


if __name__ == "__main__":
    main()
