"""Fit of jobs into quotas: nominal, borrowing, lending, cohorts, flavors, and queues that may not be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.planning.jobs import PlannedJob
from platform_sdk.planning.quota import Fit, Queues, fit
from tests.planning.plan_server import cluster_queue

RECORDED = Path(__file__).parents[1] / "kubeflow/recorded/cluster"


def job(gpus: int, pods: int = 1, kind: str = "PyTorchJob", **requests: float) -> PlannedJob:
    amounts = {"cpu": 8.0, "memory": 2.0**30, "nvidia.com/gpu": float(gpus), **requests}
    return PlannedJob(step="train", name="j", kind=kind, pods=pods, requests=amounts, gpus=gpus, queue="q",
                      priority=None)  # fmt: skip


def verdict(planned: PlannedJob, own: dict[str, Any], *others: dict[str, Any], **options: Any) -> str:
    return fit(planned, Queues(own, (own, *others), **options)).verdict


def gpus(nominal: int, borrow: int | None = None, lend: int | None = None) -> dict[str, Any]:
    limits = {"borrowingLimit": borrow, "lendingLimit": lend}
    return {"nominalQuota": str(nominal)} | {name: str(limit) for name, limit in limits.items() if limit is not None}


@pytest.mark.parametrize(
    ("planned", "used", "expected"),
    [(job(4), "0", "now"), (job(4), "5", "waits"), (job(4, pods=2), "0", "now"), (job(9), "0", "never"),
     (job(4, pods=3), "0", "never")],
)  # fmt: skip
def test_queue_without_cohort_has_its_nominal_quota(planned: PlannedJob, used: str, expected: str) -> None:
    assert verdict(planned, cluster_queue("a", gpus(8), used=used)) == expected


def test_reason_names_the_resource_the_need_and_the_limit() -> None:
    found = fit(job(9), Queues(cluster_queue("a", gpus(8))))
    assert found.reason == (
        "ClusterQueue a: the job needs 9 of nvidia.com/gpu, but 8 are the most that it may use (nominal quota and "
        "borrowing)"
    )


@pytest.mark.parametrize(
    ("wanted", "borrow", "lend", "used", "expected"),
    [
        (12, 4, None, "0", "now"),
        (13, 4, None, "0", "never"),  # beyond nominal plus borrowing limit
        (16, None, None, "0", "now"),  # without a limit, all that others lend
        (17, None, None, "0", "never"),
        (12, 4, 2, "0", "never"),  # the other queue lends only two
        (10, 4, 2, "0", "now"),
        (12, 4, None, "6", "waits"),  # the other queue uses its own
        (8, 0, None, "8", "now"),
    ],
)
def test_queue_in_a_cohort_borrows_what_others_lend(
    wanted: int, borrow: int | None, lend: int | None, used: str, expected: str
) -> None:
    own = cluster_queue("a", gpus(8, borrow), cohort="c")
    other = cluster_queue("b", gpus(8, lend=lend), used=used, cohort="c")
    assert verdict(job(wanted), own, other) == expected


def test_quota_of_the_cohort_itself_can_be_borrowed() -> None:
    own = cluster_queue("a", gpus(8), cohort="c")
    shared = {"metadata": {"name": "c"}, "spec": {"resourceGroups": own["spec"]["resourceGroups"]}}
    assert verdict(job(16), own) == "never"
    assert verdict(job(16), own, shared=shared) == "now"


def test_unseen_cohort_is_no_reason_for_never_unless_the_limit_is_exceeded() -> None:
    unlimited, limited = cluster_queue("a", gpus(8), cohort="c"), cluster_queue("a", gpus(8, 4), cohort="c")
    assert fit(job(100), Queues(unlimited, None)).verdict == "unknown"
    assert fit(job(12), Queues(limited, None)).verdict == "unknown"
    assert fit(job(13), Queues(limited, None)).verdict == "never"


def test_resource_without_quota_is_never_admitted_unless_kueue_ignores_it() -> None:
    own, network = cluster_queue("a", gpus(8)), job(1, **{"rdma/shared": 1.0})
    assert fit(network, Queues(own)).verdict == "never"
    assert fit(network, Queues(own, excluded=("rdma/",))).verdict == "now"
    assert fit(network, Queues(own, excluded=None)).verdict == "unknown"


def test_each_pod_set_gets_one_flavor() -> None:
    own = cluster_queue("a", gpus(4))
    [group] = own["spec"]["resourceGroups"]
    group["flavors"].append({**group["flavors"][0], "name": "other"})
    assert verdict(job(4, pods=2), own) == "now"  # the master in one flavor, the worker in the other
    assert verdict(job(8), own) == "never"
    assert verdict(job(4, pods=3), own) == "never"  # both workers are one pod set


def test_indexed_job_fits_if_one_of_its_pods_does() -> None:
    own = cluster_queue("a", gpus(2))
    assert verdict(job(1, pods=7, kind="Job"), own) == "now"
    assert verdict(job(1, pods=7), own) == "never"


def test_recorded_queue_of_kueue_is_read() -> None:
    recorded = json.loads((RECORDED / "clusterqueue.json").read_text())
    assert fit(job(1, cpu=0.1), Queues(recorded)) == Fit(verdict="now")
    assert "8 of cpu, but 0.1" in fit(job(1), Queues(recorded)).reason


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 20), st.one_of(st.none(), st.integers(0, 10)), st.integers(0, 20), st.integers(0, 20),
    st.integers(0, 20), st.integers(1, 60),
)  # fmt: skip
def test_never_is_said_only_above_nominal_plus_borrowing(
    nominal: int, borrow: int | None, other: int, used: int, lend: int, wanted: int
) -> None:
    own = cluster_queue("a", gpus(nominal, borrow), cohort="c")
    lender = cluster_queue("b", gpus(other, lend=min(lend, other)), used=str(min(used, other)), cohort="c")
    most = nominal + min(min(lend, other), min(lend, other) if borrow is None else borrow)
    found = verdict(job(wanted), own, lender)
    assert (found == "never") == (wanted > most)
    kept = other - min(lend, other)
    free = min(lend, other) - max(0, min(used, other) - kept)
    assert (found == "now") == (wanted <= nominal + (free if borrow is None else min(borrow, free)))
