"""Rules on the objects of a real cluster (Kubernetes 1.34, Kueue 0.19), and on objects changed in one place."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from platform_sdk.diagnosis.explain import Explanation, explain
from platform_sdk.diagnosis.facts import ContainerFacts, Event, Facts, JobFacts, Line, PodFacts, WorkloadFacts
from platform_sdk.diagnosis.queue_rules import HELD_BACK, MESSAGES, REASONS
from platform_sdk.kubeflow.remote.queues import totals
from platform_sdk.kubeflow.training_job.facts import conditions, observed, pod_facts
from tests.kubeflow.training_job.recordings import FOLDER, life, recording

NOT_FOUND = "failed to resolve reference: registry.example/none:1: not found"


def versions(kind: str, name: str) -> list[dict[str, Any]]:
    return [version["object"] for version in life(kind, name) if version["type"] != "DELETED"]


def recorded_job(
    name: str, at: int = -1, of_pod: int = -1, of_workload: int = -1, kind: str = "PyTorchJob"
) -> JobFacts:
    """Return the facts about a recorded job at one of its versions."""
    pods = versions("Pod", name)
    workloads = versions("Workload", f"{kind.lower()}-{name}")
    workload = workloads[of_workload] if workloads else None
    return observed(versions(kind, name)[at], workload, [pods[of_pod]] if pods else [])


def explained(*jobs: JobFacts, state: str = "RUNNING", **facts: Any) -> Explanation:
    return explain(Facts.model_validate({"run": "r", "place": "cluster", "state": state, "jobs": jobs, **facts}))


def with_pod(status: dict[str, Any], **metadata: Any) -> JobFacts:
    """Return a job whose recorded pod has another status."""
    pod = copy.deepcopy(versions("Pod", "oom2")[0])
    pod["status"], pod["metadata"] = status, pod["metadata"] | metadata
    job = copy.deepcopy(versions("PyTorchJob", "oom2")[0])
    job["status"] = {}
    return observed(job, None, [pod])


def waiting(reason: str, message: str = "") -> JobFacts:
    """Return the recorded queued job with another reason of Kueue."""
    job = recorded_job("py-usual-2", 0, of_workload=0)
    reserved = [{"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}]
    found = conditions({"status": {"conditions": reserved}})
    return job.model_copy(update={"workload": WorkloadFacts(name="w", conditions=found)})


def test_out_of_memory_names_container_and_limit() -> None:
    job = observed(versions("PyTorchJob", "oom2")[-1], None, [recording("pod-out-of-memory.json")])
    found = explained(job, state="FAILED").findings[0]
    assert found.rule == "pod_out_of_memory"
    assert found.cause == (
        "pod oom2-train-3eb9cc56-master-0: exit code 1, out of memory (OOMKilled): container pytorch, limit 800Mi"
    )
    assert found.evidence[0].time == "2026-11-23T04:33:23Z"
    plain = json.loads(job.model_dump_json().replace("OOMKilled", "Error"))
    rules = [finding.rule for finding in explained(JobFacts.model_validate(plain), state="FAILED").findings]
    assert rules == ["first_error"]


def test_first_worker_error_comes_before_its_consequences() -> None:
    job = recorded_job("exit3")
    pod = job.pods[0]

    def worker(name: str, at: str, *lines: str) -> Any:
        log = tuple(Line(number=number, text=line) for number, line in enumerate(lines, start=1))
        container = pod.containers[0].model_copy(update={"finished": at, "lines": log})
        return pod.model_copy(update={"name": name, "containers": (container,)})

    lost = worker("w-0", "2026-11-23T04:00:01Z", "torch.distributed.DistBackendError: NCCL error: remote closed")
    first = worker("w-1", "2026-11-23T04:00:02Z", "Traceback (most recent call last):", "ValueError: no rows in part 3")
    found = explained(job.model_copy(update={"pods": (lost, first)}), state="FAILED").findings[0]
    assert (found.rule, found.where) == ("first_error", "pod w-1")
    assert found.cause == "pod w-1: exit code 3: ValueError: no rows in part 3"
    assert found.evidence[0].line == 2


@pytest.mark.parametrize(
    ("status", "rule", "part"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}, "evicted", "low"),
        ({"phase": "Failed", "reason": "NodeShutdown", "message": "Pod was terminated"}, "node_lost", "was lost"),
        (
            {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True",
             "reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint"}]},
            "node_lost", "was lost",
        ),
        (
            {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True",
             "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}]},
            "evicted", "Eviction API",
        ),
        (
            {"phase": "Pending", "containerStatuses": [{"name": "pytorch", "image": "registry.example/none:1",
             "state": {"waiting": {"reason": "ImagePullBackOff", "message": NOT_FOUND}}}]},
            "image_not_pulled", "registry.example/none:1",
        ),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "message": "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."}]},
            "volume_not_bound", "waits for its volume",
        ),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]},
            "unschedulable", "nvidia.com/gpu",
        ),
    ],
)  # fmt: skip
def test_pod_in_trouble_is_explained(status: dict[str, Any], rule: str, part: str) -> None:
    found = explained(with_pod(status)).findings
    assert [finding.rule for finding in found] == [rule]
    assert part in found[0].cause
    assert explained(with_pod({"phase": "Running"})).well


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ", "limit of ephemeral-storage"),
        ('Container "main" exceeded its local ephemeral storage limit "1Gi". ', "limit of ephemeral-storage"),
        ('Usage of EmptyDir volume "shm" exceeds the limit "8Gi". ', "raise its size limit"),
    ],
)
def test_pod_beyond_its_own_storage_limit_is_told_to_raise_it(message: str, remedy: str) -> None:
    [found] = explained(with_pod({"phase": "Failed", "reason": "Evicted", "message": message})).findings
    assert remedy in found.remedy


def test_volume_that_cannot_be_mounted_is_explained_by_its_event() -> None:
    job = with_pod({"phase": "Pending"})
    warning = Event(
        object=f"Pod {job.pods[0].name}", reason="FailedMount", time="2026-11-23T04:00:00Z",
        message='MountVolume.SetUp failed for volume "workspace": persistentvolumeclaim "workspace" not found',
    )  # fmt: skip
    [found] = explained(job.model_copy(update={"events": (warning,)})).findings
    assert found.rule == "volume_not_bound"
    assert "waits for its volume workspace" in found.cause
    assert explained(job).well


def test_recorded_waits_in_the_queue_are_told_apart() -> None:
    usual_2 = versions("Workload", "pytorchjob-py-usual-2")
    first = next(number for number, item in enumerate(usual_2) if "insufficient unused" in str(item))
    [usual] = explained(recorded_job("py-usual-2", 0, of_workload=first)).findings
    assert usual.rule == "queued_WaitingForQuota"
    assert "insufficient unused quota for cpu in flavor gpu, 20m more needed" in usual.cause
    urgent = versions("Workload", "pytorchjob-py-urgent")
    first = next(number for number, item in enumerate(urgent) if "preemption of" in str(item))
    [found] = explained(recorded_job("py-urgent", 0, of_workload=first)).findings
    assert found.rule == "queued_WaitingForPreemptedWorkloads"
    assert explained(recorded_job("py-usual-2")).well


def test_recorded_preemption_is_explained() -> None:
    workloads = versions("Workload", "pytorchjob-py-usual-1")
    evicted = next(
        number for number, item in enumerate(workloads)
        if ("Evicted", "True") in [(one["type"], one["status"]) for one in item["status"].get("conditions", ())]
    )  # fmt: skip
    jobs = versions("PyTorchJob", "py-usual-1")
    suspended = next(number for number, item in enumerate(jobs) if number and item["spec"]["runPolicy"].get("suspend"))
    found = explained(recorded_job("py-usual-1", suspended, 0, evicted)).findings[0]
    assert found.rule == "preempted"
    assert "preempted by another job and is queued again: Preempted to accommodate" in found.cause


def test_run_that_pipelines_ended_without_a_failed_step_is_its_fault() -> None:
    steps = [{"name": "begin", "state": "FINISHED"}, {"name": "train", "state": "PENDING"}]
    error = "workflow's estimated size exceeds 1 MiB"
    found = explained(state="FAILED", steps=steps, error=error).findings[0]
    assert found.rule == "pipelines_failed"
    assert error in found.cause
    steps[1]["state"] = "FAILED"
    assert explained(state="FAILED", steps=steps, error=error).findings[0].rule == "first_error"


@pytest.mark.parametrize("reason", HELD_BACK)
def test_job_that_kueue_will_not_admit_again_is_told_apart_from_a_preempted_one(reason: str) -> None:
    evicted = [{"type": "Evicted", "status": "True", "reason": reason, "message": "m"}]
    job = waiting("Pending").model_copy(
        update={"workload": WorkloadFacts(name="w", conditions=conditions({"status": {"conditions": evicted}}))}
    )
    [found] = explained(job).findings
    assert f"evicted ({reason}) and is held back" in found.cause
    assert found.remedy == HELD_BACK[reason]


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_of_kueue_has_words_of_its_own(reason: str) -> None:
    [found] = explained(waiting(reason, "m")).findings
    assert found.rule == f"queued_{reason}"
    assert REASONS[reason] in found.cause


def test_job_that_waits_for_an_admission_check_quotes_its_message() -> None:
    found = conditions({"status": {"conditions": [
        {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "Quota reserved"},
        {"type": "Admitted", "status": "False", "reason": "NoReservation", "message": "provisioning has not started"},
    ]}})  # fmt: skip
    job = waiting("Pending").model_copy(update={"workload": WorkloadFacts(name="w", conditions=found)})
    [one] = explained(job).findings
    assert (one.rule, one.kind) == ("check_pending", "waiting")
    assert one.cause == f"job {job.name} has its quota and waits for an admission check: provisioning has not started"


def test_a_refusal_before_the_pod_started_is_not_the_cause() -> None:
    event = Event(
        object="PyTorchJob j",
        reason="FailedCreatePod",
        time="2026-11-23T05:00:00Z",
        message='pods "j-master-0" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=8',
    )
    main = ContainerFacts(name="pytorch", state="terminated", exit_code=1, finished="2026-11-23T05:40:00Z",
                          lines=(Line(number=9, text="ValueError: dataset row 7 has no question"),))  # fmt: skip
    pod = PodFacts(name="j-master-0", phase="Failed", created="2026-11-23T05:01:00Z", containers=(main,))
    job = JobFacts(kind="PyTorchJob", name="j", state="Failed", pods=(pod,), events=(event,))
    assert "dataset row 7" in explained(job, state="FAILED").findings[0].cause
    before = job.model_copy(update={"pods": ()})
    assert "exceeded quota: team" in explained(before, state="FAILED").findings[0].cause
    again = waiting("WaitingForQuota", "m").model_copy(update={"events": (event,)})
    assert [one.rule for one in explained(again).findings] == ["queued_WaitingForQuota"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("couldn't assign flavors to pod set node: insufficient quota for nvidia.com/gpu in flavor a100, previously "
         "considered podsets requests (0) + current podset request (16) > maximum capacity (8)", "ExceedsMaxQuota"),
        ("couldn't assign flavors to pod set node: untolerated taint {gpu a100 NoSchedule} in flavor a100",
         "NoMatchingFlavor"),
        ("LocalQueue team-b doesn't exist", "Misconfigured"),
        ("ClusterQueue team-b is inactive", "Misconfigured"),
        ("couldn't assign flavors to pod set node: insufficient unused quota for cpu in flavor gpu, 20m more needed",
         "WaitingForQuota"),
        # Several flavors: the job waits if one of them lacks nothing but unused quota.
        ("couldn't assign flavors to pod set master: insufficient quota for nvidia.com/gpu in flavor a100, previously "
         "considered podsets requests (0) + current podset request (4) > maximum capacity (2), insufficient unused "
         "quota for nvidia.com/gpu in flavor h100, 4 more needed", "WaitingForQuota"),
        ("couldn't assign flavors to pod set master: flavor a100 doesn't match node affinity, insufficient unused "
         "quota for nvidia.com/gpu in flavor h100, 4 more needed", "WaitingForQuota"),
        ("couldn't assign flavors to pod set master: insufficient unused quota for cpu in flavor a100, 4 more needed, "
         "insufficient quota for nvidia.com/gpu in flavor a100, previously considered podsets requests (0) + current "
         "podset request (4) > maximum capacity (2)", "ExceedsMaxQuota"),
    ],
)  # fmt: skip
def test_general_reason_is_told_apart_by_its_message(message: str, reason: str) -> None:
    """Kueue 0.19 reports Pending or Inadmissible without the gate UnadmittedWorkloadsObservability."""
    [found] = explained(waiting("Pending", message)).findings
    assert found.rule == f"queued_{reason}"
    assert {name for name, _ in MESSAGES} <= set(REASONS)


def test_queue_totals_name_who_holds_the_quota() -> None:
    queue = {
        "metadata": {"name": "search"},
        "spec": {"resourceGroups": [{"flavors": [{"name": "a100", "resources": [
            {"name": "nvidia.com/gpu", "nominalQuota": "8"}]}]}]},
        "status": {"flavorsReservation": [{"name": "a100", "resources": [
            {"name": "nvidia.com/gpu", "total": "12", "borrowed": "4"}]}]},
    }  # fmt: skip
    [found] = explained(waiting("WaitingForQuota"), usage=totals(queue)).findings
    assert found.evidence[1].object == "ClusterQueue search"
    assert found.evidence[1].text == "nvidia.com/gpu of a100: 12 of 8 used, 4 borrowed"


def test_job_that_kueue_ignores_is_explained() -> None:
    job = recorded_job("py-usual-2", 0, of_workload=0)
    ignored = job.model_copy(update={"workload": None})
    [found] = explained(ignored).findings
    assert found.rule == "not_managed"
    assert "add PyTorchJobs to integrations.frameworks" in found.remedy
    assert explained(ignored.model_copy(update={"unseen": "forbidden"})).well


def test_recorded_refusal_of_pods_is_explained() -> None:
    refused = (FOLDER / "trainjob-kueue-jobset-immutable.txt").read_text()
    job = recorded_job("tr-urgent", kind="TrainJob").model_copy(update={"state": "Admitted", "pods": ()})
    event = Event(object=f"TrainJob {job.name}", reason="TrainJobResourcesCreationFailed", message=refused)
    found = explained(job.model_copy(update={"events": (event,)})).findings[0]
    assert found.rule == "refused"
    assert 'admission webhook "vjobset.kb.io" denied the request' in found.cause
    quota = Event(object="Job j", reason="FailedCreate", message="p is forbidden: exceeded quota: gpus, used")
    found = explained(job.model_copy(update={"events": (quota,)})).findings[0]
    assert found.cause.startswith("resource quota gpus refuses the pods of job tr-urgent-train")


def test_job_past_its_deadline_is_explained() -> None:
    job = recorded_job("exit3").model_copy(update={"pods": ()})
    late = conditions({"status": {"conditions": [
        {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "Job was active longer than 60 s"}
    ]}})  # fmt: skip
    found = explained(job.model_copy(update={"conditions": late}), state="FAILED").findings[0]
    assert found.rule == "deadline"
    assert explained(job, state="FAILED").findings[0].rule == "run_failed"


@pytest.mark.parametrize("name", ["py-usual-1", "py-usual-2", "py-urgent", "term143"])
def test_recorded_job_that_succeeded_has_no_findings(name: str) -> None:
    assert explained(recorded_job(name), state="FINISHED").findings == ()


def test_facts_of_a_pod_keep_its_node_and_times() -> None:
    facts = pod_facts(recording("pod-out-of-memory.json"), {"pytorch": "one\ntwo\n"})
    assert facts.node
    assert facts.created == "2026-11-23T04:33:11Z"
    assert [line.text for line in facts.containers[0].lines] == ["one", "two"]
