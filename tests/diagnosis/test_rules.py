"""Rules on recorded facts: each case names its cause first, and is silent about it without the deciding fact.

``cases/`` holds facts as ``hopforge explain --save`` wrote them: of real runs on one machine, each stopped by the cause
in its name, and of finished runs; and of the objects of a real cluster (``tests/kubeflow/recorded``). The pods of
``worker_error_in_pods`` are recorded objects with the lines of the two processes of ``worker_error``; the pod of
``pod_out_of_memory_with_peak`` has the lines of a torchrun whose worker the kernel killed in a cgroup of 800 MiB. The
cases ``mlflow_*`` are facts that ``kubeflow.remote.facts`` collected from a real MLflow server (``test_curves``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.diagnosis.explain import explain
from platform_sdk.diagnosis.facts import Facts, Line

CASES = Path(__file__).parent / "cases"
CONTAINER = "jobs.0.pods.0.containers.0"
CAUSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "full_disk": ("disk_full", "the disk is full: step online", {"steps.4.lines": [], "steps.4.error": ""}),
    "memory_limit_index": ("out_of_memory", "step index ran out", {"steps.2.lines": [], "steps.2.error": ""}),
    "memory_limit_sample": ("out_of_memory", "step sample-warmup ran out", {"steps.3.lines": [], "steps.3.error": ""}),
    "retriever_refuses": ("retriever_down", "http://127.0.0.1:9/", {"steps.2.lines": [], "steps.2.error": ""}),
    "retriever_hangs": ("retriever_down", "timed out", {"steps.2.lines": [], "steps.2.error": ""}),
    "killed_step": ("process_killed", "signal SIGKILL ended the process of step online", {"steps.4.exit_code": None}),
    "killed_worker": ("process_killed", "worker process was killed", {"steps.4.error": ""}),
    "killed_run": ("run_stopped", "ended without recording its end", {"state": "RUNNING"}),
    "mlflow_down": ("delivery_failed", "MLflow at http://***@127.0.0.1:9 lacks", {"delivery.error": ""}),
    "nothing_accepted": ("nothing_accepted", "no rollout of iteration-01", {"selections": []}),
    "equal_rewards": ("equal_rewards", "every group of online", {"training.0.equal_groups": 0.9}),
    "poisoned_learning_rate": (
        "loss_not_finite",
        "the weights trained by step online give nan",
        {"steps.4.lines": [], "steps.4.error": ""},
    ),
    "unreadable_file": ("unreadable_file", "passages.jsonl: Permission", {"steps.3.lines": [], "steps.3.error": ""}),
    "retriever_awaited": ("retriever_down", "Connection reset", {"steps.2.lines": []}),
    "interrupted": ("run_stopped", "was interrupted (SIGINT or SIGTERM)", {"state": "FINISHED"}),
    "missing_model": ("first_error", "No such file or directory", {"steps.1.state": "FINISHED"}),
    "worker_error": ("first_error", "process 1 of 2: ValueError: no rows in part 3", {"steps.8.state": "FINISHED"}),
    "rank_killed": (
        "process_killed",
        "signal SIGKILL ended process 1 of 2 of step train",
        {"steps.8.lines": [], "steps.8.error": ""},
    ),
    # On a cluster
    "worker_error_in_pods": (
        "first_error",
        "pod two-train-worker-0: exit code 1: ValueError: no rows in part 3 of the data",
        {f"jobs.0.pods.{pod}.containers.0.exit_code": 0 for pod in (0, 1)},
    ),
    "exit_code_3": ("first_error", "exit code 3", {f"{CONTAINER}.exit_code": 0}),
    "pod_out_of_memory": ("pod_out_of_memory", "container pytorch, limit 800Mi", {f"{CONTAINER}.reason": "Error"}),
    "pod_out_of_memory_with_peak": (
        "pod_out_of_memory",
        "container pytorch, limit 800Mi, peak 800 MiB",
        {f"{CONTAINER}.reason": "Error"},
    ),
    "pod_killed_for_memory": ("pod_out_of_memory", "exit code 137, out of memory", {f"{CONTAINER}.reason": "Error"}),
    "waits_for_quota": ("queued_WaitingForQuota", "20m more needed", {"jobs.0.workload.conditions": []}),
    "waits_for_preempted_jobs": (
        "queued_WaitingForPreemptedWorkloads",
        "waits for preempted jobs to end",
        {"jobs.0.workload.conditions": []},
    ),
    "preempted_by_another_job": ("preempted", "preempted by another job", {"jobs.0.workload.conditions": []}),
    "pods_refused_by_a_webhook": ("refused", 'webhook "vjobset.kb.io" denied', {"jobs.0.events": []}),
    "pods_violate_the_standard": ("refused", 'violates PodSecurity "restricted', {"jobs.0.events": []}),
    "mlflow_loss_not_finite": (
        "loss_not_finite",
        "the training of warmup is not finite from step 2 on",
        {"training": []},
    ),
    "mlflow_nothing_accepted": ("nothing_accepted", "no rollout of iteration-01", {"selections.0.accepted": 1}),
    "mlflow_equal_rewards": ("equal_rewards", "every group of online", {"training.1.equal_groups": 0.5}),
    "no_node_has_room": ("unschedulable", "enough free cpu", {"jobs.0.pods.0.conditions": []}),
}
"""Rule, part of the cause, and values that replace the deciding facts, by the case's name."""

HEALTHY = sorted(path.stem for path in CASES.glob("healthy_*.json"))


def facts_of(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text())
    return content


def changed(content: dict[str, Any], values: dict[str, Any]) -> Facts:
    """Return the facts with other values at dotted paths, all of which must be there."""
    for path, value in values.items():
        *folders, last = path.split(".")
        place: Any = content
        for name in folders:
            place = place[int(name)] if isinstance(place, list) else place[name]
        assert last in place, f"{path}: no such fact"
        place[last] = value
    return Facts.model_validate(content)


@pytest.mark.parametrize("name", CAUSES)
def test_recorded_case_names_its_cause_first(name: str) -> None:
    rule, cause, _ = CAUSES[name]
    explained = explain(Facts.model_validate(facts_of(name)))
    first = explained.findings[0]
    assert (first.rule, explained.well) == (rule, False)
    assert cause in first.cause
    assert first.remedy
    assert all(evidence.object and evidence.text for evidence in first.evidence)


@pytest.mark.parametrize("name", CAUSES)
def test_rule_is_silent_without_the_deciding_fact(name: str) -> None:
    rule, _, values = CAUSES[name]
    explained = explain(changed(facts_of(name), values))
    assert rule not in [finding.rule for finding in explained.findings]


def test_killed_process_of_several_with_an_oom_kill_of_the_kernel_ran_out_of_memory() -> None:
    first = explain(changed(facts_of("rank_killed"), {}).model_copy(update={"oom_kills": 1})).findings[0]
    assert (first.rule, first.cause) == ("out_of_memory", "the kernel killed step train for lack of memory")
    assert "process 1 of 2: ended by SIGKILL" in first.evidence[0].text


def test_killed_step_out_of_memory_has_the_peak_that_the_runs_worker_logged() -> None:
    killed = changed(facts_of("killed_step"), {}).model_copy(update={"oom_kills": 1})
    line = Line(number=9, text="peak memory: 812 MiB (largest process)")
    steps = tuple(step.model_copy(update={"lines": (*step.lines, line)}) for step in killed.steps)
    first = explain(killed.model_copy(update={"steps": steps})).findings[0]
    assert first.cause == "the kernel killed step online for lack of memory, peak 812 MiB"
    assert explain(killed).findings[0].cause == "the kernel killed step online for lack of memory"


def test_peak_memory_without_a_line_in_the_log_is_not_known() -> None:
    known = explain(Facts.model_validate(facts_of("pod_out_of_memory_with_peak"))).findings[0]
    assert known.evidence[1].text == "peak memory: 800 MiB (container, with its file cache)"
    assert known.evidence[1].line == 2
    unknown = explain(changed(facts_of("pod_out_of_memory_with_peak"), {f"{CONTAINER}.lines": []})).findings[0]
    assert unknown.cause.endswith("container pytorch, limit 800Mi")
    assert unknown.evidence[1].text == "the peak memory is not known: no line reports it"


def test_every_case_is_tested() -> None:
    assert len(CAUSES) >= 24
    assert len(HEALTHY) >= 10
    assert {path.stem for path in CASES.glob("*.json")} == {*CAUSES, *HEALTHY}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_run_has_no_findings(name: str) -> None:
    explained = explain(Facts.model_validate(facts_of(name)))
    assert explained.findings == ()
    assert explained.well


def test_recorded_facts_hold_no_password() -> None:
    """The run of ``mlflow_down`` had ``u:secretpw@`` in its MLflow address."""
    assert "***@127.0.0.1" in (CASES / "mlflow_down.json").read_text()
    assert "secretpw" not in "".join(path.read_text() for path in CASES.glob("*.json"))
