"""``hopforge search`` and ``hopforge recall``: results and recall of a recipe's retriever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_sdk.cli.output import say, say_json, text_argument
from platform_sdk.cli.terminal import Terminal
from platform_sdk.config.errors import UserError
from platform_sdk.run_dir import RunDir

if TYPE_CHECKING:
    from platform_sdk.config.recipe import Recipe
    from platform_sdk.records import Evidence
    from platform_sdk.retrieval.method import RetrievalMethod
    from platform_sdk.retrieval.recall import Recall
    from platform_sdk.retrieval.retriever import Retriever

RecipeOption = Annotated[
    Path, typer.Option("--recipe", metavar="RECIPE", help="Path to a recipe, e.g. pipelines/mygo/world.yaml.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Override a value, e.g. data_dir=DIR. May be repeated."),
]
WorkdirOption = Annotated[
    Path | None,
    typer.Option(help="Directory of data and index, created if missing (default: runs/NAME of the recipe)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def search(
    question: Annotated[str, typer.Argument(help="Search text.")],
    recipe: RecipeOption,
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="Number of results (default: as the agent searches).")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Further input of the retrieval method: head is the entity whose triples are searched (knowledge "
            "graphs); question_id the question whose passages are searched (hotpot-kimi). May be repeated.",
        ),
    ] = None,
    overrides: SetOption = None,
    workdir: WorkdirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search as the recipe's agent does."""
    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.sampling.rollout import SearchRequest

    question = text_argument(question, "the search text")
    request = SearchRequest(question, _scope([text_argument(pair, "--scope") for pair in scope or ()]))
    loaded = load_recipe(recipe, overrides or ())
    method = retrieval_method(loaded)
    if missing := [key for key in method.scope if key not in request.scope]:
        raise UserError(
            f"the retrieval method of this recipe, {method.name}, needs more than a question: add "
            + " ".join(f"--scope {key}=…" for key in missing)
        )
    with _retriever(loaded, workdir) as (retriever, _):
        [results] = retriever.search([request], k or _agent_top_k(loaded))
    if as_json:
        content = {
            "question": question,
            "corpus": retriever.corpus_digest,
            "query_entities": results[0].query_entities or () if results else (),
            "evidence": [_shown(result) for result in results],
        }
        say_json(content)
        return
    from rich.markup import escape
    from rich.table import Table

    by_names = any(result.kind == "passage" and result.entities for result in results)
    table = Table("score", "id", "title", *(["found through"] if by_names else []), "text")
    for result in results:
        names = [escape(", ".join(result.entities))] if by_names else []
        table.add_row(f"{result.score:.4f}", escape(result.id), escape(result.title), *names, escape(result.text))
    Terminal().print(table if results else "nothing found")


def _agent_top_k(recipe: Recipe) -> int:
    """Return the number of results that the recipe's agent searches for: ``agent.top_k``, or its search tool's.

    Raises:
        UserError: the agent's settings have neither.
    """
    from platform_sdk.config.tools import SearchToolSpec

    agent = recipe.settings("agent")
    tools = getattr(agent, "tools", ())
    found = [getattr(agent, "top_k", None), *(tool.top_k for tool in tools if isinstance(tool, SearchToolSpec))]
    number = next((value for value in found if isinstance(value, int)), None)
    if number is None:
        raise UserError(f"{recipe.path}: agent has no top_k and no search tool; add -k with the number of results")
    return number


def recall(
    recipe: RecipeOption,
    k: Annotated[str, typer.Option("-k", metavar="K,K,…", help="Values of k.")] = "2,5,10",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD,METHOD,…",
            help="Retrieval methods to compare with the first one on the same questions (default: the recipe's).",
        ),
    ] = None,
    overrides: SetOption = None,
    workdir: WorkdirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure recall@k of the gold evidence of the evaluation questions; the query is the question's text.

    For triples, each gold triple is searched, in a graph among the triples of its head. For passages, titles are
    compared.
    """
    from platform_sdk.config.recipe import load_recipe

    ks, loaded = _numbers(k), load_recipe(recipe, overrides or ())
    if methods is None:
        facts, _ = _measured(loaded, workdir, ks)
        compared = [facts]
    else:
        names = dict.fromkeys(name.strip() for name in methods.split(","))
        if "" in names:
            raise UserError(
                f"--methods takes retrieval methods, separated by commas, e.g. passages,lexical, not {methods!r}"
            )
        recipes = [load_recipe(recipe, [*(overrides or ()), *_by(loaded, name)]) for name in names]
        results = [_measured(each, workdir, ks) for each in recipes]
        compared = [
            facts | {"differences": {str(k): change._asdict() for k, change in recall.compare(results[0][1]).items()}}
            for facts, recall in results
        ]
    if as_json:
        say_json(compared[0] if methods is None else {"methods": compared})
        return
    _print_recall(compared)


def _by(recipe: Recipe, method: str) -> list[str]:
    """Return the overrides that select a retrieval method, with default settings unless it is the recipe's method."""
    own = retrieval_method(recipe).name == method
    return [] if own else [f"retrieval.method={method}", "retrieval.settings={}"]


def _measured(recipe: Recipe, workdir: Path | None, ks: list[int]) -> tuple[dict[str, Any], Recall]:
    """Return the figures of a recipe's retrieval method, and the recall of each question."""
    from platform_sdk.record_files import read_jsonl
    from platform_sdk.records import Question
    from platform_sdk.retrieval.recall import measure_recall

    method = retrieval_method(recipe)
    with _retriever(recipe, workdir) as (retriever, run_dir):
        questions = list(read_jsonl(RunDir(run_dir).questions("eval"), Question))
        measured = measure_recall(retriever, method.scope, questions, ks)
    facts = {
        "recipe": recipe.name,
        "environment": recipe.parameters["environment"],
        "method": method.name,
        "encoder": retriever.encoder,
        "corpus": retriever.corpus_digest,
        "n": measured.n,
        "without_gold": measured.without_gold,
        "recall": {str(k): value for k, value in measured.at.items()},
        "intervals": {str(k): bounds for k, bounds in measured.intervals.items()},
    }
    return facts, measured


def _print_recall(compared: list[dict[str, Any]]) -> None:
    """Print a row for each method and k, with differences from the first method if there are several."""
    from rich.table import Table

    first, *others = compared
    title = f"{first['recipe']} ({first['environment']}): {first['n']} questions, percent"
    table = Table("method", "k", title=title)
    difference = (f"difference from {first['method']}", "95 % interval") if others else ()
    for head in ("recall@k", "95 % interval", *difference):
        table.add_column(head, justify="right")
    for facts in compared:
        for k, value in facts["recall"].items():
            cells = [facts["method"], k, f"{100 * value:.1f}", _interval(*facts["intervals"][k])]
            if facts in others:
                change = facts["differences"][k]
                cells += [f"{100 * change['difference']:+.1f}", _interval(change["low"], change["high"])]
            table.add_row(*cells)
    Terminal().print(table)
    if first["without_gold"]:
        say(f"{first['without_gold']} questions have no gold evidence and are not counted", err=True)


def _interval(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f}"


def _shown(hit: Evidence) -> dict[str, Any]:
    """Return all fields of a piece of evidence, including empty ones, and the id of its passage."""
    passage = hit.source.passage if hit.source else hit.id if hit.kind == "passage" else None
    fields = hit.model_dump(mode="json", exclude={"query_entities"})
    return fields | {"parts": hit.parts, "entities": hit.entities, "passage": passage}


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise UserError(f"-k takes whole numbers from 1, separated by commas, e.g. 2,5,10, not {text}")
    return sorted({int(part) for part in parts})


def _scope(options: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in options]
    if wrong := [key for key, equals, _ in pairs if not (key and equals)]:
        raise UserError(f"--scope takes KEY=VALUE, e.g. head=Oslo, not {wrong[0]}")
    return {key: value for key, _, value in pairs}


def retrieval_method(recipe: Recipe) -> RetrievalMethod[Any, Any]:
    """Return the retrieval method of a recipe.

    Raises:
        UserError: the method's agents do not search.
    """
    from platform_sdk.retrieval.index import method_of

    if "retrieval" not in recipe.parameters:
        raise UserError(f"{recipe.path}: the agents of method {recipe.pipeline.document.method} do not search")
    return method_of(recipe.parameters["environment"], recipe.settings("retrieval"))


@contextmanager
def _retriever(recipe: Recipe, workdir: Path | None) -> Iterator[tuple[Retriever, Path]]:
    """Yield the recipe's retriever and its run directory; both are created if missing.

    Raises:
        UserError: the retrieval method refuses a search inside the context.
    """
    from platform_sdk.retrieval.environments import build_retriever
    from platform_sdk.retrieval.retriever import InvalidRequest

    run_dir = prepared_run(recipe, workdir)
    _check_graph(recipe, run_dir)
    with build_retriever(recipe.parameters["environment"], run_dir, recipe.settings("retrieval")) as retriever:
        try:
            yield retriever, run_dir
        except InvalidRequest as error:
            raise UserError(f"{error}; change --scope, or choose another retrieval.method") from error


def _check_graph(recipe: Recipe, run_dir: Path) -> None:
    """Refuse a graph of another extractor than the recipe's; a recipe without settings of its graph accepts any."""
    from platform_sdk.config.graph import GraphSpec
    from platform_sdk.config.retrieval import GRAPH_METHODS
    from platform_sdk.graph.graph import MANIFEST, check_extractor
    from platform_sdk.graph.sources import graph_folder

    folder = graph_folder(run_dir)
    if recipe.settings("retrieval").method not in GRAPH_METHODS or not (folder / MANIFEST).exists():
        return
    spec = recipe.structs.get("graph")
    if isinstance(spec, GraphSpec) and spec != GraphSpec():
        check_extractor(folder, spec)


def prepared_run(recipe: Recipe, workdir: Path | None) -> Path:
    """Return the directory with the recipe's data; missing data is prepared.

    Raises:
        UserError: the directory contains a run on other data, or a run with altered files.
    """
    from platform_sdk.data.dataset import prepare

    run_dir = workdir or Path("runs") / recipe.name
    check_same_data(recipe, run_dir)
    data_dir = recipe.parameters.get("data_dir")  # a pipeline of the user's own may have none
    prepare(recipe.settings("dataset"), Path(data_dir) if data_dir else None, run_dir)
    return run_dir


def check_same_data(recipe: Recipe, run_dir: Path) -> None:
    """Raise a UserError if a directory has a run on other data, which preparing this recipe's data would replace."""
    from platform_sdk.config.differences import differences
    from platform_sdk.execution.runs import has_the_data
    from platform_sdk.tracking.opened import contains_run, open_run

    if not contains_run(run_dir):
        return
    existing = open_run(run_dir).recipe["parameters"]
    changes = "\n".join(map(str, differences(existing.get("dataset"), recipe.parameters["dataset"], "dataset")))
    if changes:
        raise UserError(f"{run_dir} contains a run on other data; choose another --workdir.\n{changes}")
    if not has_the_data(recipe, run_dir):
        raise UserError(
            f"{run_dir} contains a run on other data files; choose another --workdir, or the run's own files"
        )
