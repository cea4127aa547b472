"""Rules between fields of a teams file: names that exist, quotas that add up, one role a person."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain, combinations

from platform_sdk.config.bounded_yaml import FieldPath
from platform_sdk.config.source import ConfigError, Problem, Source, suggestion
from platform_sdk.config.teams import Pool, TeamsSpec
from platform_sdk.teams.people import binding_name, users_of

RESERVED = re.compile(
    r"default|kubeflow|hopforge|hopforge-services|hopforge-milvus|monitoring|auth|oauth2-proxy|cert-manager|keda|"
    r"(?:kube|openshift|knative)-.*|.*-(?:system|operator)"
)
"""Names of existing namespaces, in which a team's runs would share volumes and rights with others."""
RUNTIMES = re.compile(r"(?:.*-)?(?:online|program)")
"""Teams whose runtime would have the name of another team's or of the shared one with a server or a program."""
MLFLOW_ADMIN = "admin"
"""MLflow's administrator in the manifests; runs of a team log in as a user of the team's name."""
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

Found = Iterator[tuple[FieldPath, str]]


def check(spec: TeamsSpec, source: Source, collections: Collection[str]) -> list[Problem]:
    """Check the fields against each other; return warnings.

    Args:
        spec: The teams.
        source: The document that they were read from.
        collections: Names of all collections that the retriever can serve.

    Raises:
        ConfigError: all problems, each with its line.
    """
    found = chain(_names(spec), _people(spec), _shares(spec), _jobs(spec), _nodes(spec), _served(spec, collections))
    problems = [*source.repeated, *(source.problem(path, message) for path, message in found)]
    if problems:
        raise ConfigError(sorted(problems, key=_line))
    return [source.problem(path, message) for path, message in _warnings(spec)]


def _line(problem: Problem) -> tuple[str, int]:
    name, _, line = problem.place.rpartition(":")
    return name, int(line)


def _names(spec: TeamsSpec) -> Found:
    for name, team in spec.teams.items():
        if not NAMESPACE.fullmatch(name):
            yield (
                ("teams", name),
                "cannot be the name of a namespace; use up to 63 lower-case letters, digits and hyphens",
            )
        elif RESERVED.fullmatch(name):
            yield ("teams", name), "is a namespace of the system; give the team a name of its own"
        elif RUNTIMES.fullmatch(name):
            yield ("teams", name), "ends like the runtimes of jobs with a server or a program; choose another name"
        elif name == MLFLOW_ADMIN:
            yield ("teams", name), "is the name of MLflow's administrator; choose another name"
        for at, priority in enumerate(team.priorities.allowed):
            yield from _known(("teams", name, "priorities", "allowed", at), "priority", priority, spec.priorities)
        yield from _known(
            ("teams", name, "priorities", "default"), "priority", team.priorities.default, spec.priorities
        )
        for pool in team.gpus:
            yield from _known(("teams", name, "gpus", pool), "pool", pool, spec.pools)


def _known(path: FieldPath, what: str, name: str, known: Collection[str]) -> Found:
    if name not in known:
        yield path, f"there is no {what} {name}; {suggestion(name, known)}"


def _people(spec: TeamsSpec) -> Found:
    for name, team in spec.teams.items():
        first: dict[str, str] = {}
        if not team.members.admin:
            yield ("teams", name, "members"), "has no admin, who owns the Profile; add `admin: [user@example.com]`"
        for role, user, at in team.members.roles():
            if user in first:
                yield (
                    ("teams", name, "members", role, at),
                    f"{user} is {first[user]} already; name everybody once, with the role of most rights",
                )
            elif user in spec.teams:
                yield ("teams", name, "members", role, at), f"{user} is a team, whose runs have this name in MLflow"
            elif user == MLFLOW_ADMIN:
                yield ("teams", name, "members", role, at), f"{user} is MLflow's administrator; use another name"
            first.setdefault(user, role)
        bound: dict[str, str] = {}
        for user, role in users_of(name, spec).items():
            other = bound.setdefault(binding_name(user, role), user)
            if other != user:
                yield (
                    ("teams", name, "members"),
                    f"{other} and {user} get one name in Kubeflow, {binding_name(user, role)}; give them two roles",
                )
    for user, count in Counter(spec.auditors).items():
        if count > 1:
            yield ("auditors",), f"names {user} {count} times; once is enough"
        elif user in spec.teams:
            yield ("auditors",), f"{user} is a team, whose runs have this name in MLflow"
        elif user == MLFLOW_ADMIN:
            yield ("auditors",), f"{user} is MLflow's administrator; use another name"


def _served(spec: TeamsSpec, collections: Collection[str]) -> Found:
    for name, team in spec.teams.items():
        for at, collection in enumerate(team.collections):
            yield from _known(("teams", name, "collections", at), "collection", collection, collections)
    if not any(team.collections for team in spec.teams.values()):
        yield (
            ("teams",),
            "no team lists a collection, and the retriever serves at least one; add e.g. `collections: [hotpotqa]`",
        )


def _shares(spec: TeamsSpec) -> Found:
    for name, team in spec.teams.items():
        for pool, share in team.gpus.items():
            if share.lent > share.nominal:
                yield (
                    ("teams", name, "gpus", pool, "lend"),
                    f"{share.lent} is above nominal ({share.nominal}): a team lends only what is its own",
                )
    for name, own in spec.pools.items():
        if own.resource == "cpu" and own.per_gpu.cpu != 1:
            yield ("pools", name, "per_gpu", "cpu"), "must be 1 where the resource is cpu: cores themselves are counted"
        nominal = {team: share.gpus[name].nominal for team, share in spec.teams.items() if name in share.gpus}
        if sum(nominal.values()) > own.count:
            parts = " + ".join(f"{count} ({team})" for team, count in sorted(nominal.items()))
            yield (
                ("pools", name, "count"),
                f"{own.count} is below the sum of nominal, {parts} = {sum(nominal.values())}; lower the shares, "
                "since quotas that the nodes cannot give leave jobs admitted and without a place",
            )


def _jobs(spec: TeamsSpec) -> Found:
    for name, team in spec.teams.items():
        path = ("teams", name, "job")
        share = team.gpus.get(team.job.pool)
        if share is None:
            yield (*path, "pool"), f"the team has no share of {team.job.pool}; {suggestion(team.job.pool, team.gpus)}"
        elif team.job.total > share.nominal + share.borrow:
            job = team.job
            yield (
                path,
                f"takes {job.total} GPUs ({job.nodes} × ({job.gpus} + {job.sampler_gpus})), above nominal plus borrow "
                f"({share.nominal} + {share.borrow}): it would wait for ever",
            )


def _nodes(spec: TeamsSpec) -> Found:
    for one, other in combinations(sorted(spec.pools), 2):
        if not _apart(spec.pools[one], spec.pools[other]):
            yield (
                ("pools", other, "nodes", "labels"),
                f"no label tells these nodes from those of {one}; give both pools one label with different values",
            )


def _apart(one: Pool, other: Pool) -> bool:
    shared = one.nodes.labels.keys() & other.nodes.labels.keys()
    return any(one.nodes.labels[key] != other.nodes.labels[key] for key in shared)


def _warnings(spec: TeamsSpec) -> Found:
    for name, team in sorted(spec.teams.items()):
        for pool, share in sorted(team.gpus.items()):
            others = sum(
                other.gpus[pool].lent for other_name, other in spec.teams.items()
                if other_name != name and pool in other.gpus
            )  # fmt: skip
            if share.borrow > others:
                yield (
                    ("teams", name, "gpus", pool, "borrow"),
                    f"{share.borrow} is above the {others} that all other teams lend; it will never be reached",
                )
