"""Admission policies that make sharing GPUs hold: creators of pods with GPUs, and queues and priorities of jobs."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("cel", reason="the extra [dev] is not installed")

from platform_sdk.kubeflow.training_job import indexedjob, pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.description import LABEL_PRIORITY, LABEL_QUEUE
from tests.kubeflow.admission import EXTRACTION, JOB, SERVED, STEP, Request, refusals
from tests.kubeflow.rendered import OVERLAYS, Item, built, pods

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

PYTORCH, WITH_SERVER = pytorchjob.render(JOB), pytorchjob.render(SERVED)
TRAIN, TRAIN_WITH_SERVER = trainjob.render(JOB), trainjob.render(SERVED)
WITHOUT_GPUS = JOB.spec.resources.model_copy(update={"gpus": 0})
CLIENT = trainjob.render(replace(SERVED, spec=JOB.spec.model_copy(update={"resources": WITHOUT_GPUS})))
MULTI_NODE = pytorchjob.render(replace(JOB, spec=JOB.spec.model_copy(update={"nodes": 2})))
CONTROLLERS = "system:serviceaccount:kube-system:"
OPERATORS = (
    CONTROLLERS + "job-controller",
    "system:serviceaccount:kubeflow:training-operator",
    "system:serviceaccount:jobset-system:jobset-controller-manager",
    "system:serviceaccount:kubeflow-system:jobset-controller-manager",
    "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager",
)
LAUNCHER = "system:serviceaccount:hopforge:launcher"
KUEUE = "system:serviceaccount:kueue-system:kueue-controller-manager"
OTHERS = (
    "ann@example.com",
    "system:serviceaccount:another:launcher",
    "system:serviceaccount:hopforge:job-controller",
    "system:serviceaccount:kubeflow:argo",
    *(CONTROLLERS + f"{name}-controller" for name in ("cronjob", "daemon-set", "replicaset", "statefulset")),
)
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
POD_MESSAGE = "only the operator of a job may create a pod with GPUs or resource claims"
QUEUE_MESSAGE = "a job with GPUs needs a queue"
PRIORITY_MESSAGE = "the job's priority is not one that"
CLASS_MESSAGE = "a job's pods may only have a PriorityClass"


def pod_of(job: Item) -> Item:
    [role, *_] = job["spec"]["pytorchReplicaSpecs"].values()
    return {"kind": "Pod", "metadata": role["template"]["metadata"], "spec": role["template"]["spec"]}


def bare(**spec: Any) -> Item:
    return {"kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "c"}], **spec}}


def jobset(*containers: Item, **spec: Any) -> Item:
    template = {"spec": {"template": {"spec": {"containers": list(containers), **spec}}}}
    return {"kind": "JobSet", "metadata": {}, "spec": {"replicatedJobs": [{"name": "a", "template": template}]}}


def batch_job(*containers: Item, **spec: Any) -> Item:
    return {"kind": "Job", "metadata": {}, "spec": {"template": {"spec": {"containers": list(containers), **spec}}}}


def tfjob(*containers: Item, **spec: Any) -> Item:
    role = {"template": {"spec": {"containers": list(containers), **spec}}}
    return {"kind": "TFJob", "metadata": {}, "spec": {"tfReplicaSpecs": {"Chief": role}}}


def labelled(item: Item, **labels: str | None) -> Item:
    names = {"queue": LABEL_QUEUE, "priority": LABEL_PRIORITY}
    item = copy.deepcopy(item)
    own = item.setdefault("metadata", {}).setdefault("labels", {})
    for name, value in labels.items():
        own.pop(names[name], None)
        if value is not None:
            own[names[name]] = value
    return item


def only(item: Item, message: str, **given: Any) -> None:
    [said] = refusals(Request(item, **given))
    assert said.startswith(message)


@pytest.mark.parametrize("user", OPERATORS)
@pytest.mark.parametrize("job", [PYTORCH, WITH_SERVER, MULTI_NODE], ids=["pytorchjob", "with a server", "two nodes"])
def test_operators_create_pods_with_gpus(job: Item, user: str) -> None:
    assert refusals(Request(pod_of(job), user=user)) == []
    assert refusals(Request(bare(resourceClaims=[{"name": "gpu"}]), user=user)) == []


@pytest.mark.parametrize("user", OTHERS)
@pytest.mark.parametrize(
    "pod",
    [
        pod_of(PYTORCH),
        bare(containers=[{"name": "c", **GPU}]),
        bare(containers=[{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]),
        bare(initContainers=[{"name": "i", **GPU}]),
        bare(resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]),
        bare(containers=[{"name": "c", "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}]),
        bare(containers=[{"name": "c", "resources": {"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}]),
    ],
    ids=["of a job", "limit", "request", "init container", "claim", "class limit", "class request"],
)
def test_pods_with_gpus_of_other_accounts_are_refused(pod: Item, user: str) -> None:
    only(pod, POD_MESSAGE, user=user)


def test_forged_label_and_owner_reference_of_a_gpu_pod_prove_nothing() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    labels = {"batch.kubernetes.io/job-name": "j", LABEL_QUEUE: "hopforge", "training.kubeflow.org/job-name": "j"}
    pod = bare(containers=[{"name": "c", **GPU}]) | {"metadata": {"labels": labels, "ownerReferences": [owner]}}
    only(pod, POD_MESSAGE, user="ann@example.com")


def test_pods_without_gpus_are_anybodys() -> None:
    own = [template for namespace, _, template in pods(built("base/team")) if namespace == "hopforge"]
    for spec in (STEP["spec"], *(template["spec"] for template in (*own, *built("loader")))):
        for user in (*OTHERS, *OPERATORS):
            assert refusals(Request({"kind": "Pod", "spec": spec}, user=user)) == []


@pytest.mark.parametrize("user", [*OTHERS, *OPERATORS, LAUNCHER])
@pytest.mark.parametrize(
    "job",
    [PYTORCH, WITH_SERVER, MULTI_NODE, TRAIN, TRAIN_WITH_SERVER, EXTRACTION],
    ids=["pytorchjob", "with a server", "two nodes", "trainjob", "trainjob with a server", "extraction"],
)
def test_shipped_jobs_with_a_queue_are_admitted(job: Item, user: str) -> None:
    assert refusals(Request(job, user=user)) == []
    usual = labelled(job, priority="usual")
    assert refusals(Request(usual, user=user, priorities="usual,urgent")) == []


GPU_JOBS = {
    "PyTorchJob": PYTORCH,
    "with a server": WITH_SERVER,
    "TrainJob": TRAIN,
    "TrainJob with a server": TRAIN_WITH_SERVER,
    "TrainJob whose server alone has GPUs": CLIENT,
    "Indexed Job": EXTRACTION,
    "Job": batch_job({"name": "c", **GPU}),
    "Job's init container": batch_job({"name": "c"}, initContainers=[{"name": "i", **GPU}]),
    "Job with a claim": batch_job({"name": "c"}, resourceClaims=[{"name": "gpu"}]),
    "Job with a device class": batch_job(
        {"name": "c", "resources": {"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}
    ),
    "Job with a limit of a device class": batch_job(
        {"name": "c", "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}
    ),
    "Job with a request": batch_job({"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}),
    "JobSet": jobset({"name": "c"}, {"name": "d", **GPU}),
    "TFJob": tfjob({"name": "c", **GPU}),
    "TrainJob of another runtime": {
        "kind": "TrainJob",
        "spec": {"runtimeRef": {"kind": "ClusterTrainingRuntime", "name": "with-gpus"}},
    },
    "TrainJob of a namespace's runtime": {
        "kind": "TrainJob",
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "hopforge"}},
    },
}


@pytest.mark.parametrize("job", GPU_JOBS.values(), ids=GPU_JOBS)
def test_jobs_with_gpus_need_a_queue_unless_an_operator_creates_them(job: Item) -> None:
    for unnamed in (None, ""):
        for user in ("ann@example.com", LAUNCHER, CONTROLLERS + "cronjob-controller"):
            if job["kind"] in ("JobSet", "TFJob") and user == LAUNCHER:
                continue  # accounts of runs create none
            only(labelled(job, queue=unnamed), QUEUE_MESSAGE, user=user)
    for user in OPERATORS:
        assert refusals(Request(labelled(job, queue=None), user=user)) == []
    assert refusals(Request(labelled(job, queue="hopforge"), user="ann@example.com")) == []


def test_jobs_without_gpus_need_no_queue() -> None:
    small = JOB.spec.model_copy(update={"queue": None, "resources": WITHOUT_GPUS})
    without = replace(JOB, spec=small)
    for job in (
        pytorchjob.render(without),
        trainjob.render(without),
        indexedjob.render(replace(without, indexed=True)),
        jobset({"name": "c", "resources": {"limits": {"cpu": "1"}}}),
        tfjob({"name": "c"}),
        batch_job({"name": "c"}),
    ):
        assert refusals(Request(job)) == []


@pytest.mark.parametrize("job", [PYTORCH, TRAIN, EXTRACTION], ids=["pytorchjob", "trainjob", "job"])
def test_a_change_cannot_take_a_job_out_of_its_queue(job: Item) -> None:
    resumed = copy.deepcopy(job)
    resumed["spec"]["suspend"] = resumed["spec"].get("runPolicy", {})["suspend"] = False
    for changed in (labelled(job, queue=None), labelled(resumed, queue=None)):
        only(changed, QUEUE_MESSAGE, operation="UPDATE", old=job)
    assert refusals(Request(resumed, operation="UPDATE", user=KUEUE, old=job)) == []
    assert refusals(Request(resumed, operation="UPDATE", user="ann@example.com", old=job)) == []


def test_metadata_of_a_job_from_before_the_policy_may_change() -> None:
    """The garbage collector's finalizers, a step's heartbeat."""
    old = labelled(PYTORCH, queue=None, priority="urgent")
    changed = copy.deepcopy(old)
    changed["metadata"] |= {"annotations": {"hopforge.dev/heartbeat": "now"}, "finalizers": []}
    assert refusals(Request(changed, operation="UPDATE", old=old)) == []
    changed["spec"]["nprocPerNode"] = "2"
    assert len(refusals(Request(changed, operation="UPDATE", old=old))) == 2
    assert refusals(Request(changed, operation="UPDATE", old=old, user=KUEUE)) == []


@pytest.mark.parametrize("allowed", [None, "", "usual", "urgently,usual", "usual,urgent-ish"])
@pytest.mark.parametrize("job", GPU_JOBS.values(), ids=GPU_JOBS)
def test_priority_that_the_namespace_does_not_allow_is_refused(job: Item, allowed: str | None) -> None:
    queued = labelled(job, queue="hopforge")
    only(labelled(queued, priority="urgent"), PRIORITY_MESSAGE, priorities=allowed)
    only(labelled(queued, priority="urgent"), PRIORITY_MESSAGE, priorities=allowed, operation="UPDATE", old=queued)
    assert refusals(Request(labelled(queued, priority="urgent"), priorities="usual,urgent")) == []
    for none in (None, ""):
        assert refusals(Request(labelled(queued, priority=none), priorities=allowed)) == []


def with_class(name: str) -> list[Item]:
    spec = {"priorityClassName": name}
    policy = copy.deepcopy(PYTORCH)
    policy["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": name}
    train = copy.deepcopy(TRAIN)
    [patch] = train["spec"]["runtimePatches"]
    [node] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    node["template"]["spec"]["template"]["spec"] |= spec
    jobs = [kind({"name": "c", **GPU}, **spec) for kind in (batch_job, jobset, tfjob)]
    return [labelled(job, queue="hopforge") for job in (*jobs, policy, train)]


def test_pod_priority_class_replaces_no_priority_of_kueue() -> None:
    for job in with_class("hopforge-service"):
        only(job, CLASS_MESSAGE, priorities="usual")
        assert refusals(Request(job, priorities="usual,hopforge-service")) == []
    for job in with_class("hopforge-upkeep"):
        only(job, CLASS_MESSAGE)
    upkeep = batch_job({"name": "c"}, priorityClassName="hopforge-upkeep")
    assert refusals(Request(upkeep)) == refusals(Request(labelled(upkeep, queue="default"))) == []
    only(labelled(batch_job({"name": "c"}, priorityClassName="other"), queue="default"), CLASS_MESSAGE)


@pytest.mark.parametrize("user", ["ann@example.com", LAUNCHER])
def test_priority_class_evicts_nobody_by_pods_without_gpus_or_queue_either(user: str) -> None:
    job = batch_job({"name": "c"}, priorityClassName="hopforge-service")
    [said] = refusals(Request(job, user=user, priorities="usual"))
    assert said.startswith(CLASS_MESSAGE)
    pod = bare(priorityClassName="hopforge-service")
    [said] = refusals(Request(pod, user="ann@example.com", priorities="usual"))
    assert said.startswith("the pod's PriorityClass is not one that")
    assert refusals(Request(pod, user=OPERATORS[0], priorities="usual")) == []
    for allowed in (bare(priorityClassName="hopforge-upkeep"), bare(priorityClassName="low", priority=-1)):
        assert refusals(Request(allowed, user="ann@example.com")) == []


def test_a_job_cannot_pose_as_part_of_an_admitted_job() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "small", "uid": "1", "controller": True}
    for job in (PYTORCH, TRAIN, batch_job({"name": "c", **GPU})):
        queued = labelled(job, queue="hopforge")
        child = copy.deepcopy(queued)
        child["metadata"]["ownerReferences"] = [owner]
        for request in (Request(child, user=LAUNCHER), Request(child, user=LAUNCHER, operation="UPDATE", old=queued)):
            [said] = refusals(request)
            assert said.startswith("a job with GPUs or a queue may not be controlled by another job")
        assert refusals(Request(child, user=OPERATORS[0])) == []
        for harmless in (owner | {"controller": False}, owner | {"kind": "Workflow"}):
            child["metadata"]["ownerReferences"] = [harmless]
            assert refusals(Request(child, user=LAUNCHER)) == []


def test_other_clusters_need_no_queue() -> None:
    """Overlays without Kueue: jobs start at once, but pods with GPUs are the operators' there too."""
    for variant in OVERLAYS:
        kueue = any(item["kind"] == "ClusterQueue" for item in built(variant))
        for job in GPU_JOBS.values():
            said = refusals(Request(labelled(job, queue=None)), variant)
            assert [text.startswith(QUEUE_MESSAGE) for text in said] == [True] * kueue
        [said_of_pod] = refusals(Request(bare(containers=[{"name": "c", **GPU}])), variant)
        assert said_of_pod.startswith(POD_MESSAGE)


def test_both_policies_have_the_same_operators_and_resources() -> None:
    items = [item for item in built("base") if item["kind"] == "ValidatingAdmissionPolicy"]
    by_name = {item["metadata"]["name"]: item["spec"] for item in items}
    on_pods, on_jobs = by_name["hopforge-gpu-pods"], by_name["hopforge-gpu-jobs"]
    lists = [
        {one["name"]: one["expression"] for one in rules["variables"] if one["name"] == "resources"}
        for rules in (on_pods, on_jobs)
    ]
    assert lists[0] == lists[1] == {"resources": "['nvidia.com/gpu']"}
    [operators] = [one["expression"] for one in on_pods["variables"] if one["name"] == "operators"]
    [condition] = [one["expression"] for one in on_jobs["matchConditions"] if one["name"] == "not-by-an-operator"]
    for account in OPERATORS:
        assert f"'{account}'" in operators
        assert f"'{account}'" in condition
    assert operators.count("'system:") == len(OPERATORS) == condition.count("'system:") - 1
