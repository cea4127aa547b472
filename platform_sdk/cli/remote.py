"""``hopforge submit`` and ``upload``: send recipes and pipelines to a Kubeflow Pipelines server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_sdk.cli.follow import HostOption, watch
from platform_sdk.cli.output import say_json
from platform_sdk.cli.run import RecipeArgument, SetOption
from platform_sdk.cli.terminal import Terminal, say
from platform_sdk.config.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.config.cluster import ClusterSpec
    from platform_sdk.config.form import FormField
    from platform_sdk.config.recipe import Recipe

NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace of the team, on a multi-user server.")
]
ClusterOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File that describes the cluster (default: cluster.yaml in this folder).",
                 envvar="HOPFORGE_CLUSTER_FILE"),
]  # fmt: skip
WIDE = 120  # minimum terminal width for a form as a table


def submit(
    recipe: RecipeArgument,
    namespace: NamespaceOption = None,
    cluster: ClusterOption = None,
    queue: Annotated[str | None, typer.Option(help="The Kueue LocalQueue of its jobs, instead of the file's.")] = None,
    host: HostOption = None,
    overrides: SetOption = None,
    experiment: Annotated[
        str | None, typer.Option(help="Experiment of the run (default: one named like the pipeline).")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run until it ends, as hopforge watch does.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the recipe, the cluster file and the queue; submit nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a recipe on a cluster: upload its pipeline unless it exists, and start a run.

    Authenticate as with kfp: KF_PIPELINES_TOKEN, KF_PIPELINES_SA_TOKEN_PATH (a token's file), or KF_PIPELINES_COOKIES.

    If a private authority signed the server's certificate, set KF_PIPELINES_SSL_CA_CERT to its certificate (PEM file).

    With a queue, the cluster's Kueue must manage the created kind of job; this is checked if KUBECONFIG may read
    Kueue's configuration. If KUBECONFIG names the cluster, the checks of hopforge plan are made, too: a run that cannot
    work, or whose jobs can never fit into the queue, is refused.
    """
    place = read_cluster(cluster, queue)

    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.config.source import ConfigError
    from platform_sdk.kubeflow.training_job.kueue import check_queueing
    from platform_sdk.methods.faults import errors

    loaded = load_recipe(recipe, overrides or (), place.environment)
    tasks = len(loaded.plan)
    if problems := errors(loaded, place):
        raise ConfigError(problems)
    if note := check_queueing(place.job):
        say(note, err=True)
    if dry_run:
        _refuse_impossible(loaded, place, namespace)
        if as_json:
            say_json({"recipe": str(recipe), "tasks": tasks})
        else:
            say(f"{recipe}: ok ({tasks} tasks)")
        return

    from platform_sdk.kubeflow.remote.connection import Server
    from platform_sdk.kubeflow.remote.runs import SYSTEM_NAMESPACE
    from platform_sdk.kubeflow.remote.submit import submit as submit_run

    server = Server(host)
    _refuse_impossible(loaded, place, server.namespace(namespace) or SYSTEM_NAMESPACE)
    made = submit_run(server, recipe, overrides or (), place, namespace=namespace, experiment=experiment)
    if as_json:
        say_json(asdict(made))
    else:
        say(f"run:        {made.run}\n            {made.run_url}")
        say(f"experiment: {made.experiment}\n            {made.experiment_url}")
        say(f"version:    {made.version} ({'uploaded' if made.uploaded else 'existing'})")
        say(f"            {made.version_url}")
    if wait:
        watch(made.run_id, namespace=namespace, host=host, as_json=as_json)


def _refuse_impossible(recipe: Recipe, cluster: ClusterSpec, namespace: str | None) -> None:
    """Make the checks of a plan if KUBECONFIG names a cluster; print what makes the run wait.

    Raises:
        UserError: the run cannot work, or a job of it never fits into its queue.
    """
    from platform_sdk.planning.cluster import check_on_cluster
    from platform_sdk.planning.connection import connected

    place, connection, _ = connected(cluster, namespace)
    if connection is None:
        return
    planned = check_on_cluster(recipe, place, connection)
    if planned.problems:
        raise UserError(
            f"{recipe.name} cannot run in namespace {place.namespace} of the cluster in KUBECONFIG:\n"
            + "\n".join(planned.problems)
        )
    waits = dict.fromkeys(fit.reason for fit in planned.fits.values() if fit.verdict == "waits")
    for note in (*planned.notes, *(f"jobs will wait: {reason}" for reason in waits)):
        say(note, err=True)


def upload(
    pipelines: Annotated[
        list[str] | None, typer.Argument(metavar="PIPELINE", help="Pipeline names, e.g. mygo (default: all).")
    ] = None,
    namespace: NamespaceOption = None,
    shared: Annotated[bool, typer.Option("--shared", help="Share with all namespaces of a multi-user server.")] = False,
    cluster: ClusterOption = None,
    queue: Annotated[
        str | None, typer.Option(help="The Kueue LocalQueue of their jobs, instead of the file's.")
    ] = None,
    host: HostOption = None,
    overrides: SetOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the forms as the UI would show them, without a server.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Upload pipelines to the Kubeflow UI: a version for every recipe, with the recipe's values as the form's defaults.

    --set changes a value of every recipe, including values that shape the pipeline: hopforge upload mygo --set
    iterations=10 makes 10 the form's default. Environment variables such as HOPFORGE_DATA are read from the cluster
    file, not from this machine.

    Existing versions are not changed. Authentication is the same as for hopforge submit.
    """
    from platform_sdk.kubeflow.remote.catalogue import recipes_of

    if shared and namespace:
        raise UserError("--shared is for all teams, --namespace for one team: remove one of them")
    if dry_run:
        variables = {} if cluster is None else read_cluster(cluster, queue).environment
        _print_forms(recipes_of(pipelines or (), overrides=overrides or (), variables=variables), as_json)
        return
    place = read_cluster(cluster, queue)
    catalogue = recipes_of(pipelines or (), overrides=overrides or (), variables=place.environment)

    from platform_sdk.kubeflow.remote.catalogue import upload as upload_all
    from platform_sdk.kubeflow.remote.connection import Server
    from platform_sdk.kubeflow.training_job.kueue import check_queueing

    if note := check_queueing(place.job):
        say(note, err=True)

    server = Server(host)
    owner = None if shared else server.namespace(namespace)
    done = []
    for version in upload_all(
        server, [recipe for group in catalogue.values() for recipe in group], place, namespace=owner
    ):
        done.append(asdict(version))
        if not as_json:
            state = "uploaded" if version.new else "existing"
            say(f"{version.pipeline}: {version.version} {state}  {version.version_url}")
    if as_json:
        say_json(done)


def read_cluster(path: Path | None, queue: str | None) -> ClusterSpec:
    """Read a cluster file; ``queue`` replaces its queue."""
    from pydantic import ValidationError

    from platform_sdk.config.cluster import ClusterSpec
    from platform_sdk.config.document import read_as

    path = path or Path("cluster.yaml")
    if not path.is_file():
        raise UserError(f"{path}: no such file; pass the cluster file with --cluster FILE")
    spec = read_as(ClusterSpec, path)
    if queue is None:
        return spec
    try:
        return ClusterSpec.model_validate({**spec.model_dump(), "job": {**spec.job.model_dump(), "queue": queue}})
    except ValidationError as error:
        raise UserError(f"--queue {queue}: {error.errors()[0]['msg']}") from error


def _print_forms(catalogue: dict[str, list[Recipe]], as_json: bool) -> None:
    if as_json:
        say_json([_as_json(name, recipes) for name, recipes in catalogue.items()])
        return
    from rich.markup import escape
    from rich.padding import Padding
    from rich.table import Table

    # A pipe has no width, and its reader cannot use wrapped lines.
    console = Terminal(highlight=False)
    for name, recipes in catalogue.items():
        if not recipes:
            continue
        console.print(f"\n[bold]{escape(name)}[/bold]: {escape(recipes[0].pipeline.document.description)}")
        for alike in _with_equal_forms(recipes):
            fields = [_cells(field, alike[0]) for field in alike[0].form]
            if console.width >= WIDE:
                table = Table(box=None, header_style="bold", pad_edge=False)
                for title in ("parameter", "type", "default"):
                    table.add_column(title, no_wrap=True)
                table.add_column("description")
                for row in fields:
                    table.add_row(*map(escape, row))
                console.print(table)
            else:
                for parameter, kind, default, text in fields:
                    console.print(f"[bold]{parameter}[/bold]  {escape(f'{kind}, by default {default}')}")
                    console.print(Padding(escape(text), (0, 0, 0, 4)))
            versions, shown = ", ".join(recipe.name for recipe in alike), alike[0].name
            console.print(f"versions: {versions} (defaults and bounds shown: {shown})")


def _with_equal_forms(recipes: Sequence[Recipe]) -> list[list[Recipe]]:
    """Group recipes whose forms set the same values."""
    groups: dict[tuple[str, ...], list[Recipe]] = {}
    for recipe in recipes:
        groups.setdefault(tuple(field.setting for field in recipe.form), []).append(recipe)
    return list(groups.values())


def _cells(field: FormField, recipe: Recipe) -> tuple[str, str, str, str]:
    """Return the cells of a form's field: name, type, default and description."""
    kind = " | ".join(map(str, field.choices)) or field.type
    return field.name, kind, str(field.value_in(recipe.parameters)), field.text


def _as_json(name: str, recipes: Sequence[Recipe]) -> dict[str, Any]:
    """Return the form fields of all recipes by setting, with names, bounds and defaults by recipe."""
    catalogue: dict[str, dict[str, tuple[FormField, Any]]] = {}
    for recipe in recipes:
        for field in recipe.form:
            catalogue.setdefault(field.setting, {})[recipe.name] = field, field.value_in(recipe.parameters)
    first = {setting: next(iter(versions.values()))[0] for setting, versions in catalogue.items()}
    return {
        "pipeline": name,
        "form": [
            {
                "sets": setting,
                "group": field.group,
                "type": field.type,
                "choices": list(field.choices),
                "description": field.description,
                "names": {recipe: version.name for recipe, (version, _) in catalogue[setting].items()},
                "bounds": {recipe: version.bounds for recipe, (version, _) in catalogue[setting].items()},
                "defaults": {recipe: value for recipe, (_, value) in catalogue[setting].items()},
            }
            for setting, field in sorted(first.items(), key=lambda item: item[1].name)
        ],
    }
