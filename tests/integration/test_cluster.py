"""The launcher against a real cluster with the real operators: whichever ``KUBECONFIG`` leads to.

Everything is made in one namespace, ``HOPFORGE_TEST_NAMESPACE`` (``default``), and is deleted again. Pods run
``HOPFORGE_TEST_IMAGE``, an image of hopforge with torch, on a CPU; without it only what starts no pod is tested. The
volume is of the cluster's default storage class.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from platform_sdk.config.cluster import JobSpec, Resources, SamplerResources, SamplerSpec, Workspace
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job import pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.api import KUEUE, ClusterApi, connect
from platform_sdk.kubeflow.training_job.backend import api_for
from platform_sdk.kubeflow.training_job.description import Description, Sidecar
from platform_sdk.kubeflow.training_job.launcher import run_job

pytestmark = pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="KUBECONFIG is not set; it leads to a cluster")
IMAGE = os.environ.get("HOPFORGE_TEST_IMAGE")
needs_image = pytest.mark.skipif(IMAGE is None, reason="HOPFORGE_TEST_IMAGE is not set; pods run it")
NAMESPACE = os.environ.get("HOPFORGE_TEST_NAMESPACE", "default")
RUN = f"hopforge-test-{uuid.uuid4().hex[:8]}"
SPEC = JobSpec(
    image=IMAGE or "hopforge/launcher", restarts=0, run_timeout_seconds=900, ttl_seconds=3600,
    resources=Resources(cpu="500m", memory="1Gi", gpus=0, shared_memory="64Mi"),
)  # fmt: skip
SAMPLER = SamplerSpec(image="hopforge/sampler", resources=SamplerResources(cpu="1", memory="1Gi", gpus=0))


def described(step: str, module: str, **spec: Any) -> Description:
    return Description(
        run=RUN, step=step, namespace=NAMESPACE, module=module, spec_file="/workspace/absent.json",
        spec=SPEC.model_copy(update=spec), workspace=Workspace(claim=RUN),
    )  # fmt: skip


WELL = described("well", "this")  # a module of Python's own that prints a poem and ends well
BADLY = described("badly", "platform_sdk.training")


@pytest.fixture(scope="module")
def connection() -> Any:
    return connect()


def need(connection: Any, group: str, version: str, plural: str) -> None:
    """Skip where the cluster does not know a kind."""
    custom = connection.custom_api
    any_api = api_for(WELL, connection)
    if any_api.found(custom.list_namespaced_custom_object, group, version, NAMESPACE, plural, limit=1) is None:
        pytest.skip(f"this cluster has no {plural}.{group}/{version}")


@pytest.fixture
def api(connection: Any) -> Iterator[ClusterApi]:
    """API of PyTorchJobs; those of this test are deleted behind it, whatever became of them."""
    need(connection, pytorchjob.GROUP, pytorchjob.VERSION, pytorchjob.PLURAL)
    api = api_for(WELL, connection)
    yield api
    for job in api.jobs(f"hopforge.dev/run={RUN}"):
        api.delete(job["metadata"]["name"])
    wait_for(lambda: not api.jobs(f"hopforge.dev/run={RUN}"), "the jobs to be gone")


@pytest.fixture
def dead_queue(connection: Any) -> Iterator[str]:
    """A LocalQueue that leads nowhere."""
    need(connection, *KUEUE)
    group, version, _ = KUEUE
    custom, place = connection.custom_api, (group, version, NAMESPACE, "localqueues")
    body = {
        "apiVersion": f"{group}/{version}",
        "kind": "LocalQueue",
        "metadata": {"name": RUN},
        "spec": {"clusterQueue": "no-such-cluster-queue"},
    }
    custom.create_namespaced_custom_object(*place, body, field_validation="Strict")
    yield RUN
    custom.delete_namespaced_custom_object(*place, RUN)


@pytest.fixture(scope="module")
def volume(connection: Any) -> Iterator[None]:
    claim = {
        "metadata": {"name": RUN},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    core = connection.core_api
    core.create_namespaced_persistent_volume_claim(NAMESPACE, claim, field_validation="Strict")
    yield
    core.delete_namespaced_persistent_volume_claim(RUN, NAMESPACE)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(1)


def dry_run(connection: Any, backend: Any, job: Description) -> None:
    """Have the API server, with its webhooks, take the object, and keep nothing."""
    create = connection.custom_api.create_namespaced_custom_object
    place = (backend.GROUP, backend.VERSION, NAMESPACE, backend.PLURAL)
    api_for(job, connection).call(create, *place, backend.render(job), dry_run="All", field_validation="Strict")


@pytest.mark.parametrize(
    "job",
    [
        WELL,
        replace(WELL, spec=SPEC.model_copy(update={"nodes": 3, "minimum_nodes": 2, "queue": "q"})),
        replace(WELL, spec=SPEC.model_copy(update={"nodes": 2}), sidecar=Sidecar(SAMPLER, "/workspace/served.json")),
    ],
    ids=["plain", "elastic", "with a server"],
)
def test_the_api_server_takes_our_pytorchjobs_under_strict_validation(
    connection: Any, api: ClusterApi, job: Description
) -> None:
    dry_run(connection, pytorchjob, job)
    assert api.get(job.name) is None


def test_the_api_server_takes_our_trainjobs_under_strict_validation(connection: Any) -> None:
    need(connection, trainjob.GROUP, trainjob.VERSION, trainjob.PLURAL)
    runtimes = connection.custom_api.list_cluster_custom_object(
        trainjob.GROUP, trainjob.VERSION, "clustertrainingruntimes"
    )["items"]
    plain = described("well", "this", backend="trainjob")
    for job in (plain, replace(plain, sidecar=Sidecar(SAMPLER, "/workspace/served.json"))):
        name = trainjob.runtime_name(job.spec, job.sidecar is not None)
        if name not in {runtime["metadata"]["name"] for runtime in runtimes}:
            pytest.skip(f"this cluster has no ClusterTrainingRuntime {name}, which a TrainJob's webhook looks for")
        dry_run(connection, trainjob, job)


@needs_image
@pytest.mark.usefixtures("volume")
def test_a_job_runs_to_its_end_and_a_second_launcher_adopts_it(connection: Any, api: ClusterApi) -> None:
    class Killed(BaseException):
        pass

    def dies(line: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        run_job(WELL, api, dies)  # as soon as it is created
    first = api.get(WELL.name)
    assert first is not None
    told: list[str] = []
    run_job(WELL, api, told.append)
    assert told[0] == f"{WELL.name}: adopted"
    assert told[-1].startswith(f"{WELL.name}: Succeeded")
    last = api.get(WELL.name)
    assert last is not None
    assert last["metadata"]["uid"] == first["metadata"]["uid"]
    assert "Beautiful is better than ugly." in api.log(api.pods(WELL.name)[0]["metadata"]["name"], "pytorch", 100)
    api.delete(WELL.name)
    wait_for(lambda: api.get(WELL.name) is None and not api.pods(WELL.name), "the job and its pods to be gone")


@needs_image
@pytest.mark.usefixtures("volume")
def test_failed_job_reports_exit_code_and_last_log_lines(api: ClusterApi) -> None:
    with pytest.raises(UserError) as failed:
        run_job(BADLY, api, print)
    message = str(failed.value)
    assert message.startswith(f"job {BADLY.name} failed")
    assert "exit code 1" in message
    assert "/workspace/absent.json" in message, "the last lines of the log say which file is not there"


def test_job_for_a_missing_queue_is_not_created(connection: Any, api: ClusterApi) -> None:
    waiting = described("waiting", "this", queue="no-such-queue", queue_timeout_seconds=60)
    known = api.found(connection.custom_api.list_namespaced_custom_object, *KUEUE[:2], NAMESPACE, KUEUE[2], limit=1)
    why = "no Kueue that serves" if known is None else "no LocalQueue no-such-queue"
    with pytest.raises(UserError, match=f"cannot be queued: .*{why}"):
        run_job(waiting, api, print)
    assert api.get(waiting.name) is None


def test_unadmitted_job_reports_why_it_waited(api: ClusterApi, dead_queue: str) -> None:
    waiting = described("waiting", "this", queue=dead_queue, queue_timeout_seconds=60)
    with pytest.raises(UserError, match=r"waited for more than 60 s and was deleted \(Queued: .*no-such-cluster-queue"):
        run_job(waiting, api, print)
    wait_for(lambda: api.get(waiting.name) is None, "the job to be gone")
