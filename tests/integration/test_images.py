"""The CPU variants of the images, as pods run them: no rights, no network, a read-only root (``make test-images``).

``HOPFORGE_IMAGES`` says where they are (localhost/hopforge) and ``HOPFORGE_PODMAN`` how podman is called here; without
them these tests skip. ``images.mk`` builds them first.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from platform_sdk.config.cluster import ClusterSpec, JobSpec, Resources, Workspace
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.training import TrainSpec
from platform_sdk.data.dataset import prepare
from platform_sdk.kubeflow.compile import compile_recipe, write_ir
from platform_sdk.kubeflow.training_job.description import Description
from platform_sdk.processes.launch import StepProcesses
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Rollout
from platform_sdk.training.launch import TrainStep, launch_training
from tests.integration.containers import Podman, opened
from tests.sampling.tiny_models import save_model
from tests.training.conftest import dialogue
from tests.training.test_steps import as_rollout

ROOT = Path(__file__).parents[2]
# Bytes, some way above what was measured (images/README.md).
BOUNDS = {"launcher": 2.5e9, "retriever": 2.5e9, "trainer": 2.6e9, "sampler": 5.5e9}
USER = "10001:10001"


@pytest.mark.parametrize("name", BOUNDS)
def test_image_has_labels_a_bounded_size_and_no_secrets(podman: Podman, name: str) -> None:
    facts = podman.inspect(name)
    labels = facts["Config"]["Labels"]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    assert labels["org.opencontainers.image.title"] == f"hopforge {name}"
    assert labels["org.opencontainers.image.version"] == podman.version
    assert labels["org.opencontainers.image.revision"] == commit
    assert facts["Config"]["User"] == USER
    assert facts["Size"] < BOUNDS[name]
    told = "\n".join(facts["Config"]["Env"]) + podman.history(name)
    assert not re.search(r"(?i)password|secret|api_?key|token", told)


LEFT = """
import json, os, shutil, stat
found = {"setuid": [], "caches": [], "keys": [], "tests": []}
secrets = {".netrc", ".pypirc", ".git-credentials", ".env", "id_rsa", "id_ed25519", "kubeconfig", "mlflow.db"}
for folder, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/sys", "/dev", "/tmp", "/run")]
    for name in folders:
        path = os.path.join(folder, name)
        if name in (".cache", "pip", ".git", ".venv", "mlruns") and os.listdir(path):
            found["caches"].append(path)
        if name == "tests" and path.startswith("/opt"):
            found["tests"].append(path)
    for name in files:
        path = os.path.join(folder, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode) and mode & 0o6000:
            found["setuid"].append(path)
        key = stat.S_ISREG(mode) and name.endswith((".pem", ".key")) and b"PRIVATE" in open(path, "rb").read()
        if name in secrets or key:
            found["keys"].append(path)
found["programs"] = [p for p in ("gcc", "cc", "g++", "make", "git", "pip") if shutil.which(p)]
print(json.dumps(found))
"""


@pytest.mark.parametrize("name", BOUNDS)
def test_image_holds_no_caches_keys_tests_or_setuid_programs(podman: Podman, name: str) -> None:
    done = podman.run(name, "python", "-c", LEFT, user="0:0")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"setuid": [], "caches": [], "keys": [], "tests": [], "programs": []}


@pytest.mark.parametrize("name", BOUNDS)
def test_image_runs_unprivileged_with_a_read_only_installation(podman: Podman, name: str) -> None:
    program = (
        "import os, pathlib, importlib.metadata as m; print(os.getuid(), os.getgid(), m.version('hopforge'));"
        "pathlib.Path('/tmp/x').write_text('x'); pathlib.Path('/opt/hopforge/x').write_text('x')"
    )
    done = podman.run(name, "python", "-c", program)
    assert done.stdout.split() == ["10001", "10001", podman.version]
    assert "Read-only file system: '/opt/hopforge/x'" in done.stderr


def test_the_launcher_knows_the_pipelines_that_it_ships(podman: Podman) -> None:
    recipes = "/opt/hopforge/lib/python3*/site-packages/platform_sdk/shipped/pipelines/*/world*.yaml"
    done = podman.run("launcher", "sh", "-c", f"hopforge validate {recipes}")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r": ok \(", done.stdout)) >= 4


def test_the_launcher_runs_a_step_as_pipelines_does(podman: Podman, workspace: Path) -> None:
    """The command line of the compiled pipeline, with the step's inputs as Kubeflow Pipelines' launcher gives them."""
    overrides = ["dataset.world.entities=40", "dataset.world.train_questions=5", "dataset.world.eval_questions=5"]
    recipe = load_recipe(ROOT / "pipelines/mygo/world.yaml", overrides)
    cluster = read_as(ClusterSpec, ROOT / "pipelines/cluster.yaml")
    compiled = workspace.parent / "compiled.yaml"
    write_ir(compile_recipe(recipe, cluster.model_copy(update={"secrets": {}})), compiled)
    pipeline = next(iter(YAML(typ="safe").load_all(compiled)))
    [dag] = [one["dag"]["tasks"] for name, one in pipeline["components"].items() if name.startswith("comp-exit-")]
    outputs: dict[str, dict[str, Any]] = {}
    for name in ("begin", "corpus"):
        component = pipeline["components"][dag[name]["componentRef"]["name"]]
        given = {key: value_of(one, pipeline, outputs) for key, one in dag[name]["inputs"]["parameters"].items()}
        given = {key: value for key, value in given.items() if value is not None}
        folder = f"/workspace/steps/{name}"
        asked = component.get("outputDefinitions", {})
        executor_input = {
            "inputs": {"parameterValues": given},
            "outputs": {
                "parameters": {key: {"outputFile": f"{folder}/{key}"} for key in asked.get("parameters", {})},
                "artifacts": {
                    key: {"artifacts": [{"name": key, "uri": f"{folder}/{key}", "type": one["artifactType"]}]}
                    for key, one in asked.get("artifacts", {}).items()
                },
                "outputFile": f"{folder}/executor_output.json",
            },
        }  # fmt: skip
        container = pipeline["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
        command = [*container["command"], *container["args"]]
        environment = {one["name"]: one["value"] for one in container["env"]}
        environment["MLFLOW_TRACKING_URI"] = "sqlite:////workspace/mlflow.db"
        done = podman.run(
            "launcher", *(part.replace("{{$}}", json.dumps(executor_input)) for part in command),
            volumes={workspace: "/workspace"}, environment=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        told = json.loads((workspace / "steps" / name / "executor_output.json").read_text())
        outputs[name] = told["parameterValues"]
    here = prepare(recipe.settings("dataset"), None, workspace.parent / "here")
    assert outputs["corpus"] == {
        "corpus_digest": here.passages, "train_digest": here.train, "eval_digest": here.eval,
        "triples_digest": here.triples,
    }  # fmt: skip


def value_of(wire: dict[str, Any], pipeline: dict[str, Any], outputs: dict[str, dict[str, Any]]) -> Any:
    """The value of a step's input: a constant, an output of an earlier step, or the pipeline's default."""
    if "runtimeValue" in wire:
        constant = wire["runtimeValue"]["constant"]
        return constant.replace("{{$.pipeline_job_uuid}}", "1") if isinstance(constant, str) else constant
    if "taskOutputParameter" in wire:
        source = wire["taskOutputParameter"]
        return outputs[source["producerTask"]][source["outputParameterKey"]]
    name = wire["componentInputParameter"].removeprefix("pipelinechannel--")
    return pipeline["root"]["inputDefinitions"]["parameters"][name].get("defaultValue")


def test_the_trainer_trains_as_this_machine_would(podman: Podman, workspace: Path) -> None:
    """The very command of a job, two processes, on a volume that has the same path here and there."""
    spec = TrainSpec(
        learning_rate=1e-2, minimum_learning_rate=1e-3, batch_size=6, micro_batch_tokens=40, epochs=2, device="cpu",
        processes=2,
    )  # fmt: skip
    model = save_model(workspace / "model")
    rng = random.Random(1)
    dialogues = [dialogue(number, rng.randint(5, 20), rng) for number in range(24)]
    selected = workspace / "selected.jsonl"
    pairs = zip(dialogues[::2], dialogues[1::2], strict=True)
    write_jsonl(selected, Rollout, [as_rollout(number, *pair) for number, pair in enumerate(pairs)])
    step = TrainStep(
        run_dir=workspace / "here", phase="iteration-01", model=str(model), selected=selected, seed=3, spec=spec
    )
    here = launch_training(step)
    described = Description(
        run="r", step="train", namespace="team", module="", spec_file="", workspace=Workspace(claim="w"),
        spec=JobSpec(image="i", resources=Resources(gpus=0)), processes=2,
    )  # fmt: skip
    operator = {
        "PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "2", "PET_MASTER_ADDR": "localhost",
        "PET_MASTER_PORT": "23456", "OMP_NUM_THREADS": "1",
    }  # fmt: skip

    def runner(processes: StepProcesses) -> None:
        opened(workspace)
        command = replace(described, module=processes.module, spec_file=str(processes.spec_file)).command
        for name, value in operator.items():  # as Kubernetes puts a container's variables into its command
            command = [part.replace(f"$({name})", value) for part in command]
        done = podman.run("trainer", *command, volumes={workspace: str(workspace)}, environment=operator)
        assert done.returncode == 0, done.stderr[-3000:]

    there = launch_training(step.model_copy(update={"run_dir": workspace / "there"}), runner)
    assert there.weights == here.weights
    assert len(there.curve) > 1
