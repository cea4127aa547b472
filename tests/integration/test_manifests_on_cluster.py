"""The overlays against a real API server: everything that it checks, and nothing is changed.

Any cluster will do whose KUBECONFIG may create namespaced and cluster-wide objects; kinds whose operator is not
installed there are named and left out. Without KUBECONFIG these tests skip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.kubeflow.rendered import OVERLAYS, Item, built

pytestmark = [
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="KUBECONFIG names no cluster"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]


def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["kubectl", *arguments], capture_output=True, text=True, timeout=120)


def missing_kinds(items: tuple[Item, ...]) -> set[tuple[str, str]]:
    """The kinds (group/version, kind) that the API server does not know."""
    wanted = {(item["apiVersion"], item["kind"]) for item in items}
    return {(v, k) for v, k in wanted if kubectl("explain", k, f"--api-version={v}").returncode}


@pytest.mark.parametrize("variant", OVERLAYS)
def test_the_api_server_takes_an_overlay(variant: str, tmp_path: Path) -> None:
    items = built(variant)
    missing = missing_kinds(items)
    known = [item for item in items if (item["apiVersion"], item["kind"]) not in missing]
    path = tmp_path / "known.yaml"
    # A namespace that is not there yet cannot be made in a dry run, and what is in it would be refused for that alone.
    wanted = {namespace for item in known if (namespace := item["metadata"].get("namespace"))}
    absent = sorted(name for name in wanted if kubectl("get", "namespace", name).returncode)
    if absent:
        pytest.skip(f"the cluster has no namespace {', '.join(absent)}: kubectl create namespace NAME")
    with path.open("w") as stream:
        YAML(typ="safe").dump_all(known, stream)
    done = kubectl("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", str(path))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(known)
    if missing:
        names = ", ".join(f"{kind} ({version})" for version, kind in sorted(missing))
        pytest.skip(f"all else is taken, but the cluster does not know {names}: install their operators")
