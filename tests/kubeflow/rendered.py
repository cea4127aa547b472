"""The manifests as kubectl renders them."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
OVERLAYS = [f"overlays/{path.name}" for path in sorted((MANIFESTS / "overlays").iterdir())]
WORKLOADS = {"Deployment", "StatefulSet", "CronJob", "Job"}
Item = dict[str, Any]


@cache
def built(variant: str) -> tuple[Item, ...]:
    """The objects of a base, of an overlay or of the loader."""
    done = subprocess.run(["kubectl", "kustomize", str(MANIFESTS / variant)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tuple(item for item in YAML(typ="safe").load_all(done.stdout) if item)


def template_of(item: Item) -> Item:
    """The template of a workload's pods."""
    spec = item["spec"]
    return dict((spec["jobTemplate"]["spec"] if item["kind"] == "CronJob" else spec)["template"])


def pods(items: tuple[Item, ...]) -> list[tuple[str, str, Item]]:
    """Namespace, name and template of what runs; also of pods that nothing makes."""
    found = [
        (
            item["metadata"].get("namespace", ""),
            item["metadata"]["name"],
            item if item["kind"] == "Pod" else template_of(item),
        )
        for item in items
        if item["kind"] in {*WORKLOADS, "Pod"}
    ]
    assert found
    return found


def containers(template: Item) -> list[Item]:
    """Return a pod's containers, those that run before included."""
    return [*template["spec"].get("initContainers", ()), *template["spec"]["containers"]]


def workloads(items: tuple[Item, ...]) -> list[tuple[str, Item]]:
    """Names and pod templates of what runs."""
    found = [(item["metadata"]["name"], template_of(item)) for item in items if item["kind"] in WORKLOADS]
    assert found
    return found


def the(items: tuple[Item, ...], kind: str, name: str) -> Item:
    """The one object of this kind and name."""
    [found] = [item for item in items if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found
