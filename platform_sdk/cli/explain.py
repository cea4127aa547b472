"""``hopforge explain``: the cause of a run's failure, delay or worthless result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.follow import HostOption, NamespaceOption, find_remote_run, local_run
from platform_sdk.cli.output import say, say_json

if TYPE_CHECKING:
    from platform_sdk.diagnosis.explain import Explanation
    from platform_sdk.diagnosis.facts import Facts
    from platform_sdk.diagnosis.findings import Finding


def explain(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run directory, its name in runs/, or a cluster run's id or name.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the collected facts, without secrets, to this file.")
    ] = None,
    facts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Explain the facts in this file instead of a run's.")
    ] = None,
    namespace: NamespaceOption = None,
    host: HostOption = None,
) -> None:
    """Explain why a run failed, waits or learns nothing: the cause first, with its evidence and remedy.

    Nothing is changed. Without --facts, the facts are read from the run: a run of Kubeflow Pipelines or, without
    --host and --namespace, a local run directory. Authentication is the same as for hopforge submit; pods and
    queues are read with KUBECONFIG.

    The exit status is 0 if nothing is wrong with the run, 1 if something is, 2 if the command fails.
    """
    from platform_sdk.config.errors import UserError
    from platform_sdk.diagnosis.explain import explain as explain_facts
    from platform_sdk.diagnosis.facts import Facts
    from platform_sdk.files import read_model, write_text

    if bool(run) == (facts is not None):
        raise UserError("give either a run or --facts FILE")
    if facts is not None and (namespace or host):
        raise UserError("--facts needs no server: remove --namespace and --host")
    known = read_model(facts, Facts) if facts is not None else _collected(run, namespace, host)
    if save is not None:
        write_text(save, known.model_dump_json(indent=1, exclude_defaults=True) + "\n")
    explained = explain_facts(known)
    if as_json:
        say_json(explained, indent=1)
    else:
        _print(explained)
    raise typer.Exit(0 if explained.well else 1)


def _collected(run: str, namespace: str | None, host: str | None) -> Facts:
    from platform_sdk.config.errors import UserError

    if (run_dir := local_run(run, namespace, host)) is not None:
        from platform_sdk.diagnosis.local import collect

        return collect(run_dir)
    from platform_sdk.kubeflow.remote.facts import collect as collect_from_cluster

    server, found, jobs, unseen = find_remote_run(run, namespace, host)
    if jobs is None:
        raise UserError(unseen)
    facts, notes = collect_from_cluster(server, found, jobs)
    for note in notes:
        say(f"not seen: {note}", err=True)
    return facts


def _print(explained: Explanation) -> None:
    if not explained.findings:
        say(f"{explained.run}: {explained.state.lower()}, nothing found")
        return
    first, *others = explained.findings
    say(f"{explained.run}: {explained.state.lower()}: {first.cause}")
    _print_details(first)
    if others:
        say("also noticed:")
        for finding in others:
            say(f"- {finding.cause}")
            _print_details(finding)


def _print_details(finding: Finding) -> None:
    for evidence in finding.evidence:
        say(f"  evidence: {evidence}")
    say(f"  remedy: {finding.remedy}")
