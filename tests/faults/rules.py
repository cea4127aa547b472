"""Take the rules of the manifests out one by one, and say which test notices each.

    python -m tests.faults.rules [--only TEXT] [--list]

A rule is a validation, condition or matched resource of an admission policy, the policy's binding, an allowed
connection or a whole network policy, a right or its holder, a limit of a quota, or a label of a namespace. Each is
taken out of a copy of the manifests, and the tests of the manifests run on it in a process of their own until one
fails. The exit status is 1 if a rule may go unnoticed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
Keys = tuple[str | int, ...]
PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "ValidatingAdmissionPolicy": (
        ("spec", "validations"), ("spec", "matchConditions"), ("spec", "matchConstraints", "resourceRules"),
    ),
    "ValidatingAdmissionPolicyBinding": (("spec", "validationActions"), ("spec", "matchResources")),
    "NetworkPolicy": (("spec", "ingress"), ("spec", "egress"), ("spec", "policyTypes")),
    "Role": (("rules",),),
    "ClusterRole": (("rules",),),
    "RoleBinding": (("subjects",),),
    "ResourceQuota": (("spec", "hard"),),
    "LimitRange": (("spec", "limits"),),
    "Namespace": (("metadata", "labels"),),
}  # fmt: skip
"""Where the rules of a kind are: lists or mappings, of which each entry is a rule. A whole object is one as well."""
TESTS = (
    "kubeflow/test_run_accounts.py", "kubeflow/test_admission.py", "kubeflow/test_gpu_sharing.py",
    "kubeflow/test_network_policies.py", "kubeflow/test_roles.py", "kubeflow/test_manifests.py",
)  # fmt: skip
FIRST = {
    "accounts.yaml": "test_run_accounts", "admission.yaml": "test_admission", "sharing.yaml": "test_gpu_sharing",
    "NetworkPolicy": "test_network_policies", "Role": "test_roles", "RoleBinding": "test_roles",
}  # fmt: skip
"""The tests that are likely to notice, by the file's name or the kind of the object."""


@dataclass(frozen=True)
class Rule:
    """An entry of an object in a file, or the whole object without ``keys``."""

    file: str
    number: int
    kind: str
    name: str
    keys: Keys = ()

    def __str__(self) -> str:
        place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys)
        return f"{self.file}: {self.kind} {self.name}{place}"

    def take_out(self, manifests: Path) -> None:
        """Write the file of a copy of the manifests without the rule."""
        path = manifests / self.file
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        if self.keys:
            place = documents[self.number]
            for key in self.keys[:-1]:
                place = place[key]
            del place[self.keys[-1]]
        else:
            del documents[self.number]
        path.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")


def rules(folder: str = "base") -> Iterator[Rule]:
    """Yield every rule of the manifests below a folder."""
    for path in sorted((MANIFESTS / folder).rglob("*.yaml")):
        file = str(path.relative_to(MANIFESTS))
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        for number, item in enumerate(documents):
            if not isinstance(item, dict) or item.get("kind") not in PARTS:
                continue
            whole = Rule(file, number, item["kind"], item["metadata"]["name"])
            if len(documents) > 1:  # a file that its kustomization names cannot be empty
                yield whole
            for keys in PARTS[item["kind"]]:
                for entry in _entries(item, keys):
                    yield Rule(file, number, whole.kind, whole.name, (*keys, entry))


def _entries(item: Any, keys: tuple[str, ...]) -> list[str | int]:
    for key in keys:
        item = item.get(key) or {}
    return list(item if isinstance(item, dict) else range(len(item)))


def noticed_by(rule: Rule) -> str:
    """Return the first test that fails without the rule; empty if all pass. Runs in a fork of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        name = "the tests could not run"
        with contextlib.suppress(BaseException):
            name = _first_failure(rule)
        os.write(writer, name.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        name = answer.read()
    os.waitpid(child, 0)
    return name


def _first_failure(rule: Rule) -> str:
    import pytest

    from tests.kubeflow import rendered
    from tests.teams import files

    class First:
        name = ""

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed and not self.name:
                self.name = report.nodeid

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed and not self.name:
                self.name = f"{report.nodeid}: {str(report.longrepr).splitlines()[-1]}"

    with tempfile.TemporaryDirectory(prefix="hopforge-rule-") as folder:
        for path in ROOT.iterdir():
            if path != MANIFESTS:
                Path(folder, path.name).symlink_to(path)
        copy = Path(folder, "manifests")
        shutil.copytree(MANIFESTS, copy)
        rule.take_out(copy)
        rendered.MANIFESTS = files.MANIFESTS = copy
        first = First()
        likely = FIRST.get(Path(rule.file).name) or FIRST.get(rule.kind, "test_manifests")
        for test in sorted(TESTS, key=lambda path: likely not in path):
            arguments = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", str(ROOT / "tests" / test)]
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                pytest.main(arguments, plugins=[first])
            if first.name:
                break
        return first.name


def _import_slow_modules() -> None:
    """Import what the tests import, once for all forks."""
    for module in ("cel", "hypothesis", "kubernetes.client", "kubeflow.training", "platform_sdk.retrieval.service"):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.rules", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="take out only the rules whose name contains this")
    parser.add_argument("--list", action="store_true", help="only print the rules")
    arguments = parser.parse_args()
    chosen = [rule for rule in rules() if arguments.only in str(rule)]
    unnoticed = 0
    _import_slow_modules()
    for rule in chosen:
        if arguments.list:
            print(rule)
            continue
        began = time.monotonic()
        name = noticed_by(rule)
        unnoticed += not name
        print(f"{time.monotonic() - began:6.1f} s  {rule}\n          {name or 'UNNOTICED'}", flush=True)
    print(f"{len(chosen)} rules" + ("" if arguments.list else f", {unnoticed} unnoticed"))
    return min(1, unnoticed)


if __name__ == "__main__":
    sys.exit(main())
