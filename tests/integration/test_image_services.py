"""The services of the images, in containers as pods run them; see ``test_images.py``."""

from __future__ import annotations

import json
import shutil
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.dataset import prepare
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Passage
from platform_sdk.retrieval.index import build_index
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.load import load_engine
from tests.integration.containers import Podman, opened
from tests.kubeflow.rendered import built, containers, workloads
from tests.sampling.tiny_models import VOCABULARY, save_model

ASK = """
import urllib.error, urllib.request as u
try:
    answer = u.urlopen({request}, timeout=60)
except urllib.error.HTTPError as refused:
    answer = refused
print(answer.status, answer.read().decode())
"""


def answer(podman: Podman, name: str, request: str) -> tuple[int, Any]:
    """Ask a service in its container; status 0 while nobody listens."""
    done = podman.ask(name, ASK.format(request=request))
    if done.returncode:
        gone = ("Connection refused", "stopped container")
        assert any(words in done.stderr for words in gone), done.stderr[-2000:]
        return 0, None
    status, _, text = done.stdout.partition(" ")
    return int(status), json.loads(text) if text.lstrip()[:1] in ("{", "[") else text


def await_status(podman: Podman, name: str, url: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (found := answer(podman, name, repr(url)))[0] != 200:
        assert podman.running(name), podman.log(name)[-3000:]
        assert time.monotonic() < deadline, (found, podman.log(name)[-3000:])
        time.sleep(2)


def test_retriever_image_serves_searches(podman: Podman, workspace: Path) -> None:
    run_dir = workspace / "world"
    world = WorldSpec(entities=40, train_questions=5, eval_questions=5)
    prepare(DatasetSpec(format="world", world=world), None, run_dir)
    build_index(run_dir, RetrievalSpec(threads=1), "world-text")
    [first, *_] = read_jsonl(run_dir / "corpus/passages.jsonl", Passage)
    retrieval = {"threads": 1}
    spec = {
        "collections": [
            {"name": "world", "run_dir": "/workspace/world", "environment": "world-text", "retrieval": retrieval}
        ]
    }
    (workspace / "service.yaml").write_text(json.dumps(spec))
    (workspace / "tokens").mkdir()
    (workspace / "tokens/red").write_text("red-words")
    opened(workspace)
    command = ["hopforge", "serve", "retriever", "--config", "/workspace/service.yaml", "--tokens", "/workspace/tokens"]
    command += ["--host", "0.0.0.0", "--metrics-port", "9090"]
    threads = {"OMP_NUM_THREADS": "1"}
    with podman.started("retriever", *command, volumes={workspace: "/workspace"}, environment=threads) as name:
        await_status(podman, name, "http://127.0.0.1:8080/healthz", 120)
        await_status(podman, name, "http://127.0.0.1:8080/readyz", 300)
        body = json.dumps({"queries": [{"query": first.text}], "k": 3}).encode()

        def search(**headers: str) -> str:
            headers |= {"Content-Type": "application/json"}
            return f"u.Request('http://127.0.0.1:8080/v1/search', data={body!r}, headers={headers!r})"

        assert answer(podman, name, search())[0] == 401
        status, found = answer(podman, name, search(Authorization="Bearer red-words"))
        assert status == 200, found
        assert found["results"][0]["evidence"][0]["id"] == first.id
        assert answer(podman, name, "'http://127.0.0.1:9090/metrics'")[0] == 200
        assert podman.stop(name, 60) == 0, podman.log(name)[-2000:]


def of_manifest(variant: str, workload: str, container: str) -> dict[str, Any]:
    """A container as a manifest has it."""
    pod = dict(workloads(built(variant)))[workload]
    [found] = [one for one in containers(pod) if one["name"] == container]
    return dict(found)


def plain(container: dict[str, Any]) -> dict[str, str]:
    """Return its variables, but for those out of Secrets."""
    return {one["name"]: one["value"] for one in container.get("env", ()) if "value" in one}


PROCESSES = """
import os, re
found = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        shared = open(f"/proc/{pid}/smaps_rollup").read()
    except (FileNotFoundError, ProcessLookupError):
        continue
    if int(pid) != os.getpid() and "Pss" in shared:
        found[pid] = int(re.search(r"^Pss: +(\\d+) kB", shared, re.M)[1])
print(len(found), sum(found.values()))
"""


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_mlflow_serves_within_what_its_manifest_gives_it(podman: Podman, workspace: Path) -> None:
    server = of_manifest("base", "mlflow", "mlflow")
    assert server["resources"]["limits"]["memory"] == "2Gi"
    instead = {"--artifacts-destination": "/workspace/made"}
    words = [word.partition("=") for word in server["args"]]
    arguments = [f"{name}{equals}{instead.get(name, value)}" for name, equals, value in words]
    database = "sqlite:////workspace/mlflow.db"
    [config] = [i["data"] for i in built("base") if i["kind"] == "ConfigMap" and "basic_auth.ini" in i.get("data", {})]
    stored = plain(server)["MLFLOW_BACKEND_STORE_URI"]
    (workspace / "basic_auth.ini").write_text(config["basic_auth.ini"].replace(stored, database))
    opened(workspace)
    environment = plain(server) | {
        "MLFLOW_S3_ENDPOINT_URL": "http://127.0.0.1:1", "MLFLOW_BACKEND_STORE_URI": database,
        "MLFLOW_AUTH_CONFIG_PATH": "/workspace/basic_auth.ini", "MLFLOW_AUTH_ADMIN_PASSWORD": "only-for-the-admin",
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "k" * 32,
    }  # fmt: skip
    login = "Basic " + b64encode(b"admin:only-for-the-admin").decode()
    command = [*server["command"], *arguments]
    with podman.started("launcher", *command, volumes={workspace: "/workspace"}, environment=environment) as name:
        await_status(podman, name, "http://127.0.0.1:5000/health", 120)
        path = "/api/2.0/mlflow/experiments/get?experiment_id=0"

        def experiment(host: str, **headers: str) -> str:
            return f"u.Request('http://127.0.0.1:5000{path}', headers={ {'Host': host} | headers!r})"

        ours = "mlflow.hopforge-services.svc.cluster.local:5000"
        assert answer(podman, name, experiment(ours))[0] == 401
        assert answer(podman, name, experiment(ours, Authorization=login))[0] == 200
        assert answer(podman, name, experiment("example.com", Authorization=login))[0] == 403
        done = podman.ask(name, PROCESSES)
        processes, kilobytes = map(int, done.stdout.split())
        assert processes <= 6, podman.log(name)
        assert kilobytes < 1024 * 1024  # half of the limit, at rest


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_workspace_job_prepares_folders_for_the_loader(podman: Podman, workspace: Path) -> None:
    """Do as docs/cluster.md has the loader do, with few passages and without a Milvus server."""
    before = of_manifest("base", "workspace-init", "workspace-init")
    workspace.chmod(0o755)
    done = podman.run("launcher", *before["command"], *before["args"], volumes={workspace: "/workspace"})
    assert "Permission denied" in done.stderr  # a volume that belongs to root
    workspace.chmod(0o777)
    done = podman.run("launcher", *before["command"], *before["args"], volumes={workspace: "/workspace"})
    assert done.returncode == 0, done.stderr

    world = WorldSpec(entities=40, train_questions=2, eval_questions=2)
    prepare(DatasetSpec(format="world", world=world), None, workspace.parent / "world")
    passages = list(read_jsonl(workspace.parent / "world/corpus/passages.jsonl", Passage))[:8]
    data = workspace.parent / "hotpotqa"
    data.mkdir()
    rows = [{"id": one.id, "title": one.title, "text": one.text} for one in passages]
    (data / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    question = {
        "_id": "q", "question": passages[0].text, "answer": "a", "type": "bridge", "level": "hard",
        "supporting_facts": [[passages[0].title, 0]], "context": [[one.title, [one.text]] for one in passages],
    }  # fmt: skip
    for part in ("train", "dev"):
        (data / f"hotpot_{part}.json").write_text(json.dumps([question | {"_id": part}]))
    opened(data)

    [pod] = built("loader")
    [loader] = pod["spec"]["containers"]
    work = ["cd", loader["workingDir"], "&&"]
    recall = ["hopforge", "recall", "--recipe", "pipelines/mygo/hotpotqa-smollm2.yaml", "-k", "1", "--json"]
    recall += ["--workdir", "/workspace/corpora/hotpotqa"]
    recall += ["--set", "dataset.train_questions=1", "--set", "dataset.eval_questions=1"]
    volumes = {workspace: "/workspace", data: "/workspace/data/hotpotqa"}
    done = podman.run("launcher", "sh", "-c", " ".join([*work, *recall]), volumes=volumes, environment=plain(loader))
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["recall"] == {"1": 1.0}
    assert (workspace / "corpora/hotpotqa/corpus/digests.json").is_file()
    # The programs that its commands in the documentation call, and kubectl cp in the pod.
    done = podman.run("launcher", "sh", "-c", "command -v hf && command -v tar && command -v sleep")
    assert done.returncode == 0


ON_CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
IN_PROCESS = """
import json, sys
from dataclasses import asdict
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.load import load_engine
if __name__ == "__main__":
    engine = load_engine(EngineSpec(engine="vllm", live=8, max_model_len=512), "/workspace/model")
    prompts = json.load(open("/workspace/prompts.json"))
    done = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=20))
    print("ANSWER" + json.dumps([asdict(one) for one in done]))
"""


def test_the_sampler_samples_what_the_trainer_would(podman: Podman, workspace: Path) -> None:
    """vLLM within hopforge's engine, in the sampler's image, against transformers here."""
    model = save_model(workspace / "model", heads=4, kv_heads=2, width=128)
    random = np.random.default_rng(0)
    prompts = [tuple(random.integers(3, VOCABULARY, size=n).tolist()) for n in (1, 7, 40)]
    (workspace / "prompts.json").write_text(json.dumps(prompts))
    (workspace / "sample.py").write_text(IN_PROCESS)
    opened(workspace)
    done = podman.run(
        "sampler", "python", "/workspace/sample.py", volumes={workspace: "/workspace"}, environment=ON_CPU, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    found = json.loads(line.removeprefix("ANSWER"))
    expected = load_engine(EngineSpec(live=8), model).generate(prompts, SamplingParams(temperature=0, max_tokens=20))
    for one, other in zip(found, expected, strict=True):
        assert tuple(one["token_ids"]) == other.token_ids
        np.testing.assert_allclose(one["logprobs"], other.logprobs, atol=1e-4)


def test_sampler_image_serves_completions(podman: Podman, workspace: Path) -> None:
    save_model(workspace / "model", heads=4, kv_heads=2, width=128)
    opened(workspace)
    command = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/workspace/model", "--enforce-eager"]
    command += ["--dtype", "float32", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "16384"]
    command += ["--gpu-memory-utilization", "0.25"]  # on a CPU of all the machine's memory
    command += ["--host", "127.0.0.1", "--port", "8000", "--max-model-len", "512"]
    with podman.started("sampler", *command, volumes={workspace: "/workspace"}, environment=ON_CPU) as name:
        await_status(podman, name, "http://127.0.0.1:8000/health", 600)
        body = json.dumps({"model": "/workspace/model", "prompt": [5, 6, 7], "max_tokens": 5, "temperature": 0})
        request = (
            f"u.Request('http://127.0.0.1:8000/v1/completions', data={body!r}.encode(), "
            "headers={'Content-Type': 'application/json'})"
        )
        status, found = answer(podman, name, request)
        assert status == 200, found
        assert found["usage"]["completion_tokens"] == 5
        # Routes that change weights are not there unless asked for.
        assert answer(podman, name, "u.Request('http://127.0.0.1:8000/collective_rpc', data=b'{}')")[0] == 404
