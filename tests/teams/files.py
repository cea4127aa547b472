"""Teams files to render: a small one by hand, and random ones."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from platform_sdk.config.pipeline import home
from platform_sdk.config.source import load_source
from platform_sdk.config.teams import TeamsSpec
from platform_sdk.teams.checks import MLFLOW_ADMIN, RESERVED, RUNTIMES
from platform_sdk.teams.render import rendered

Item = dict[str, Any]
MANIFESTS = home() / "manifests"
CLUSTER = load_source(home() / "pipelines/cluster.yaml").data
# Also names that YAML 1.1 or 1.2 reads as other than text, and those of services.
NAMES = st.one_of(
    st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True).filter(
        lambda name: not (RESERVED.fullmatch(name) or RUNTIMES.fullmatch(name) or name == MLFLOW_ADMIN)
    ),
    st.sampled_from(["n", "yes", "no", "on", "true", "null", "1e3", "0x1f", "123", "0123", "1-2", "mlflow", "objects"]),
)
USERS = [f"{name}@example.com" for name in ("ann", "bob", "carla", "dan", "eve", "fay", "Gil", "hal_9")]


def render(content: Item, folder: Path) -> dict[str, str]:
    """Write the manifests of a teams file's content into a folder."""
    files = rendered(TeamsSpec.model_validate(content), MANIFESTS, CLUSTER)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return files


def kustomized(folder: Path) -> tuple[Item, ...]:
    """Return a folder's objects as kubectl renders them."""
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return read(done.stdout)


def read(text: str) -> tuple[Item, ...]:
    """Return the objects of a YAML file, as kubectl reads it: by version 1.1."""
    return tuple(item for item in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if item)


@st.composite
def contents(draw: st.DrawFn) -> Item:
    """Return the content of a teams file in which all agrees."""
    priorities = draw(st.dictionaries(NAMES, st.integers(-100, 10_000), min_size=1, max_size=3))
    pools = {
        name: _pool(draw, position)
        for position, name in enumerate(draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)))
    }
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    left = {name: pool["count"] for name, pool in pools.items()}
    teams = {name: _team(draw, pools, left, sorted(priorities)) for name in names}
    next(iter(teams.values()))["collections"] = ["hotpotqa"]
    content: Item = {"pools": pools, "teams": teams, "priorities": priorities}
    content["mlflow"] = draw(st.sampled_from(["workspaces", "kubernetes"]))
    if draw(st.booleans()):
        content["pipelines_url"] = "https://kubeflow.example.com/pipeline"
    if draw(st.booleans()):
        content["images"] = {"trainer": "registry.example:5000/a/trainer@sha256:" + "0f" * 32, "sampler": "s:1.2"}
    if draw(st.booleans()):
        content["auditors"] = draw(st.lists(st.sampled_from(USERS), min_size=1, max_size=2, unique=True))
    return content


def _pool(draw: st.DrawFn, position: int) -> Item:
    resource = draw(st.sampled_from(["nvidia.com/gpu", "amd.com/gpu", "cpu"]))
    pool: Item = {
        "resource": resource,
        "count": draw(st.integers(3, 32)),
        "per_gpu": {"cpu": 1 if resource == "cpu" else draw(st.integers(1, 16)), "memory": draw(_MEMORY)},
        "nodes": {"labels": {"example.com/pool": f"p{position}"}},
    }
    if draw(st.booleans()):
        pool["nodes"]["taints"] = [{"key": "gpu", "value": f"p{position}", "effect": "NoSchedule"}]
    if draw(st.booleans()):
        pool["topology"] = ["example.com/rack", "kubernetes.io/hostname"]
    return pool


_MEMORY = st.sampled_from(["512Mi", "1Gi", "96Gi", "1Ti"])


def _team(draw: st.DrawFn, pools: Item, left: dict[str, int], priorities: list[str]) -> Item:
    people = draw(st.lists(st.sampled_from(USERS), min_size=1, max_size=4, unique=True))
    gpus: Item = {}
    for name in draw(st.lists(st.sampled_from(sorted(pools)), min_size=1, unique=True)):
        nominal = draw(st.integers(0, left[name]))
        left[name] -= nominal
        gpus[name] = {"nominal": nominal, "borrow": draw(st.integers(1, 8)), "lend": draw(st.integers(0, nominal))}
    pool = draw(st.sampled_from(sorted(gpus)))
    nodes = draw(st.integers(1, min(3, gpus[pool]["nominal"] + gpus[pool]["borrow"])))
    most = (gpus[pool]["nominal"] + gpus[pool]["borrow"]) // nodes
    sampler = draw(st.integers(0, most - 1))
    default = draw(st.sampled_from(priorities))
    team: Item = {
        "members": {"admin": people[:1], "edit": people[1:2], "view": people[2:]},
        "gpus": gpus,
        "job": {"pool": pool, "nodes": nodes, "gpus": draw(st.integers(1, most - sampler)), "sampler_gpus": sampler},
        "priorities": {"default": default, "allowed": draw(st.lists(st.sampled_from(priorities), unique=True))},
    }
    if draw(st.booleans()):
        team |= {"storage": "2Ti", "secrets": ["hugging-face"], "internet": ["203.0.113.0/24", "198.51.100.7/32"]}
    return team
