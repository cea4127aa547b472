"""Deliberate faults of the manifests: each takes one rule of the admission or network policies out."""

from __future__ import annotations

from tests.faults.catalogue import FAULTS, Fault
from tests.faults.teams import TEAM_FAULTS

FOLDER = "manifests"
SHARING, ACCOUNTS = "base/cluster/sharing.yaml", "base/cluster/accounts.yaml"
MILVUS = "kubeflow/test_network_policies.py"
TESTS = "kubeflow/test_gpu_sharing.py"
PRIORITY = "variables.labels['kueue.x-k8s.io/priority-class']"


def _fault(name: str, old: str, new: str, file: str = SHARING, tests: str = TESTS) -> Fault:
    return Fault(name, file, old, new, tests, folder=FOLDER)


MANIFEST_FAULTS = (
    # A pod with GPUs is an operator's
    _fault("pods with GPUs by anybody", "request.userInfo.username in variables.operators\n", "true\n"),
    _fault(
        "operators' pods refused", "request.userInfo.username in variables.operators\n", "false\n",
    ),
    _fault(
        "claims by anybody", "|| !(has(object.spec.resourceClaims) && size(object.spec.resourceClaims) > 0)", "|| true",
    ),
    _fault(
        "GPUs of init containers by anybody",
        "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])",
        "object.spec.containers",
    ),
    _fault(
        "an owner reference proves a pod", "request.userInfo.username in variables.operators\n",
        "request.userInfo.username in variables.operators || has(object.metadata.ownerReferences)\n",
    ),
    _fault(
        "the CronJob's controller is an operator", "        !(request.userInfo.username in [\n",
        "        !(request.userInfo.username in ['system:serviceaccount:kube-system:cronjob-controller',\n",
    ),
    # A job with GPUs has a queue
    _fault("jobs need no queue", "!variables.kueue || !variables.asks || variables.queued", "true"),
    _fault("an empty queue counts", " && variables.labels['kueue.x-k8s.io/queue-name'] != ''", ""),
    _fault("labels may be taken off a job", "request.operation == 'CREATE' || object.spec != oldObject.spec\n"
           "        || (has(object.metadata.labels) ? object.metadata.labels : {})\n"
           "          != (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {})",
           "request.operation == 'CREATE' || object.spec != oldObject.spec"),
    _fault("JobSets need no queue", "        object.kind == 'JobSet' ?", "        object.kind == 'none' ?"),
    _fault("other kinds of the training-operator need no queue", "request.resource.group == 'kubeflow.org' ?\n"
           "          dyn", "object.kind == 'PyTorchJob' ?\n          dyn"),
    _fault("TrainJobs of other runtimes need no queue", "&& object.spec.runtimeRef.name in variables.runtimes)", ")"),
    _fault("operators' jobs need a queue", "        !(request.userInfo.username in [", "        !('' in ["),
    _fault("no queue in any overlay", 'value: "true"}', 'value: "false"}', "queue/kustomization.yaml"),
    _fault("a queue on clusters without Kueue", 'value: "false"}', 'value: "true"}',
           "overlays/single-node/kustomization.yaml"),
    # A job's priority is the namespace's
    _fault("any priority", "!('kueue.x-k8s.io/priority-class' in variables.labels)\n", "true\n"),
    _fault(
        "part of a priority's name", f"variables.priorities.contains(',' + {PRIORITY} + ',')",
        f"variables.priorities.contains({PRIORITY})",
    ),
    _fault(
        "any PriorityClass of a job's pods", "variables.classes.all(group, group.all(name, name == ''",
        "true || variables.classes.all(group, group.all(name, name == ''",
    ),
    _fault("any PriorityClass of pods", "!has(object.spec.priorityClassName) ||", "true ||"),
    # A job is not part of another one
    _fault(
        "a job poses as part of an admitted one", "!(variables.asks || variables.queued) || !has",
        "true || !has",
    ),
    _fault(
        "a job becomes part of an admitted one", "object.metadata.ownerReferences.exists(o,\n",
        "false && object.metadata.ownerReferences.exists(o,\n",
    ),
    _fault(
        "any PriorityClass of a PyTorchJob", "[[object.spec.runPolicy.schedulingPolicy.priorityClass]] : [])",
        "[] : [])",
    ),
    _fault(
        "the upkeep's priority for GPUs", "name == 'hopforge-upkeep' && !variables.asks", "name == 'hopforge-upkeep'",
    ),
    # Accounts of runs create jobs only
    _fault("accounts of runs create anything", "      - apiGroups: [\"*\"]", "      - apiGroups: [batch]", ACCOUNTS,
           "kubeflow/test_run_accounts.py"),
    # Runs search through the retriever
    _fault(
        "Milvus lets runs in", "operator: In, values: [loader, retriever]}\n",
        "operator: In, values: [loader, retriever]}\n"
        "        - namespaceSelector: {matchLabels: {hopforge.dev/runs: 'true'}}\n",
        "base/services/milvus/milvus.yaml", MILVUS,
    ),
    _fault(
        "runs let out to Milvus", "matchLabels: {app.kubernetes.io/name: retriever}",
        "matchExpressions: [{key: app.kubernetes.io/name, operator: In, values: [retriever, milvus]}]",
        "base/team/network.yaml", MILVUS,
    ),
)  # fmt: skip
ALL_FAULTS = (*FAULTS, *MANIFEST_FAULTS, *TEAM_FAULTS)
