"""The manifests as kubectl renders them."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
VARIANTS = ["base", "overlays/single-node", "overlays/production"]
WORKLOADS = {"Deployment", "StatefulSet", "CronJob"}
Item = dict[str, Any]


@cache
def built(variant: str) -> tuple[Item, ...]:
    """The objects of a base or an overlay."""
    done = subprocess.run(["kubectl", "kustomize", str(MANIFESTS / variant)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tuple(item for item in YAML(typ="safe").load_all(done.stdout) if item)


def template_of(item: Item) -> Item:
    """The template of a workload's pods."""
    spec = item["spec"]
    return dict((spec["jobTemplate"]["spec"] if item["kind"] == "CronJob" else spec)["template"])


def workloads(items: tuple[Item, ...]) -> list[tuple[str, Item]]:
    """Names and pod templates of what runs."""
    found = [(item["metadata"]["name"], template_of(item)) for item in items if item["kind"] in WORKLOADS]
    assert found
    return found
