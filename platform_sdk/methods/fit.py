"""Check before a run starts that its models fit the machines that it runs on.

Only clear misfits are reported: the count of bytes is a lower bound, and for a model whose configuration is not on this
machine only the size in its name is known.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.config.source import FieldPath, Problem, load_source
from platform_sdk.config.task import Task
from platform_sdk.config.training import OptimiserSpec, TrainSpec
from platform_sdk.sizing.memory import tensor_parallel_fault, training_fault, training_memory
from platform_sdk.sizing.shape import ModelShape, parameters_in_name, shape_of

if TYPE_CHECKING:
    from platform_sdk.config.cluster import ClusterSpec


def misfits(recipe: Recipe, cluster: ClusterSpec | None = None) -> list[Problem]:
    """Return the settings that cannot work on any machine, or on the cluster if one is given."""
    model = str(recipe.parameters.get("model") or "")
    shape = local_shape(model)
    online = any(spec.updates for _, spec in recipe.models(OnlineSpec))
    found: list[tuple[FieldPath, str]] = []
    graph = recipe.structs.get("graph")
    for path, engine in recipe.models(EngineSpec):
        of_graph = path[0] == "graph"  # it runs a model of its own, and ends before the training
        run_by = local_shape(getattr(graph, "model", None) or "") if of_graph else shape
        parallel = int(engine.extra.get("tensor_parallel_size", 1))
        if run_by is not None and (fault := tensor_parallel_fault(parallel, run_by.heads, run_by.key_value_heads)):
            found.append(((*path, "extra", "tensor_parallel_size"), fault))
        if online and not of_graph and (fault := engine.beside_training_fault):
            found.append(((*path, "engine"), fault))
        if engine.searching and any(spec.url is None for _, spec in recipe.models(RetrievalSpec)):
            found.append(
                ((*path, "searching"), "searches in threads need a service: set retrieval.url, or searching 0")
            )
        if cluster is not None:
            found += _on_cluster(cluster, engine, path, recipe, online)
    if cluster is not None and cluster.job.resources.gpu_memory is not None:
        from platform_sdk.config.cluster import bytes_of

        memory = bytes_of(cluster.job.resources.gpu_memory)
        size = shape.parameters if shape else parameters_in_name(model)
        trained = [training_of(task, recipe) for task in recipe.plan]
        for path, spec in recipe.models(OptimiserSpec):
            if size and spec in trained and (fault := _memory_fault(model, size, spec, cluster, memory)):
                found.append((path, fault))
    if not found:
        return []
    source = load_source(recipe.path)
    return [source.problem(("parameters", *path), message) for path, message in dict.fromkeys(found)]


def training_of(task: Task, recipe: Recipe) -> OptimiserSpec | None:
    """Return the settings of a task's training; None if the task does not train."""
    port = {"train": "training", "online": "online"}.get(task.component, "")
    known = recipe.known_inputs(task)
    if port not in known:  # also if it is another task's output, which is not known yet
        return None
    if task.component == "train":
        return TrainSpec.model_validate(known[port])
    spec = OnlineSpec.model_validate(known[port])
    return spec if spec.updates else None


def _on_cluster(
    cluster: ClusterSpec, engine: EngineSpec, path: FieldPath, recipe: Recipe, online: bool
) -> Iterator[tuple[FieldPath, str]]:
    gpus, nodes = cluster.job.resources.gpus, cluster.job.nodes
    sampling = 0 if engine.brings_server else gpus  # processes that only ask a server of their job's have none
    if sampling and engine.gpus_each > gpus:
        yield (*path, "extra"), f"an engine takes {engine.gpus_each} GPUs, but a pod has {gpus} (job.resources.gpus)"
        return
    processes = nodes * max(sampling // engine.gpus_each or 1, gpus if online else 0)
    for place, retrieval in recipe.models(RetrievalSpec):
        if processes > 1 and (reason := retrieval.single_process_reason) is not None:
            yield place, f"the cluster's jobs have {processes} processes, but {reason}"


def _memory_fault(
    model: str, parameters: float, spec: OptimiserSpec, cluster: ClusterSpec, gpu_bytes: float
) -> str | None:
    if not cluster.job.resources.gpus or spec.device == "cpu":
        return None
    processes = cluster.job.nodes * cluster.job.resources.gpus
    needed = training_memory(
        parameters,
        bfloat16=spec.precision != "float32",
        zero=spec.deepspeed,
        processes=processes,
        lora=spec.lora is not None,
        reference=isinstance(spec, OnlineSpec) and spec.beta > 0,
    )
    return training_fault(
        model, needed, gpu_bytes, processes=processes, zero=spec.deepspeed, lora=spec.lora is not None
    )


def local_shape(model: str) -> ModelShape | None:
    """Return a model's shape from its configuration on this machine; None if it is not here, or of another family."""
    if not model:
        return None
    path = Path(os.path.expanduser(model), "config.json")
    if not path.is_file():
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", model) is None:  # no name on the hub: another path, a shipped model
            return None
        path = _cached(model)
    try:
        return shape_of(json.loads(path.read_text()))
    except (OSError, KeyError, TypeError, ValueError, ArithmeticError):  # also for a damaged file
        return None


def _cached(model: str) -> Path:
    """Return the place of a hub model's configuration in the hub's cache, where ``huggingface_hub`` puts it.

    Importing ``huggingface_hub``'s own function takes as long as validating ten recipes.
    """
    from huggingface_hub.constants import HF_HUB_CACHE

    cache = Path(HF_HUB_CACHE, f"models--{model.replace('/', '--')}")
    main = cache / "refs" / "main"
    commit = main.read_text().strip() if main.is_file() else "main"
    return cache / "snapshots" / commit / "config.json"
