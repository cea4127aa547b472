"""Minimum disk space, memory and downloads of a run on this machine.

Only certain amounts are counted: a trained model's weights, and the weights, gradients and optimiser states of
training. A model whose size is unknown is listed and not counted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from platform_sdk.config.dataset import HUB, DatasetSpec
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.shipped import ASSETS
from platform_sdk.config.struct import Struct
from platform_sdk.methods.faults import named_models
from platform_sdk.methods.fit import local_shape, training_of
from platform_sdk.planning.steps import PlannedStep
from platform_sdk.sizing.memory import GIB, MASTER, training_memory
from platform_sdk.sizing.shape import parameters_in_name

HALF = 2  # bytes of a parameter in the files of a model on the hub
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class Download(Struct):
    """A model, encoder or data file that the run fetches from the Hugging Face hub.

    ``least_bytes`` is None if the size is unknown.
    """

    kind: str
    name: str
    least_bytes: int | None = None


class Needs(Struct):
    """Minimum resources of a run on this machine and the machine's resources, in bytes.

    Attributes:
        disk: written by the steps that have not finished.
        memory: of the largest training, in all of its processes; main memory, or GPU memory if ``on_gpu``.
        downloads: files that are not on this machine.
        uncounted: trained models of unknown size.
    """

    disk: int
    disk_free: int
    memory: int
    memory_total: int
    on_gpu: bool
    downloads: tuple[Download, ...] = ()
    uncounted: tuple[str, ...] = ()

    def faults(self, folder: Path) -> Iterator[str]:
        """Yield the reasons why the run cannot work on this machine."""
        if self.disk > self.disk_free:
            yield (
                f"{folder}: the run writes at least {in_gib(self.disk)}, but {in_gib(self.disk_free)} are free; "
                "free space, or choose a --workdir on another disk"
            )
        if self.memory > self.memory_total and not self.on_gpu:
            yield (
                f"a training takes at least {in_gib(self.memory)} of memory, but this machine has "
                f"{in_gib(self.memory_total)}; take a smaller model, lora, or a machine with more memory"
            )


def needs_of(recipe: Recipe, run_dir: Path, steps: Iterable[PlannedStep], *, has_gpu: bool) -> Needs:
    """Return the least resources of the steps of a run that have not finished."""
    open_steps = {step.step for step in steps if step.state != "finished"}
    models = [str(name) for key in ("model", "worker_model") if (name := recipe.parameters.get(key))]
    sizes = {name: parameters_of(name) for name in models}
    known = [size for size in sizes.values() if size is not None]
    disk, memory, on_gpu, trains = 0.0, 0.0, False, False
    for task in recipe.plan:
        spec = training_of(task, recipe) if task.id in open_steps else None
        if spec is None:
            continue
        trains = True
        if spec.lora is None:
            disk += MASTER * sum(known)
        gpu = has_gpu and spec.device != "cpu"
        on_gpu |= gpu
        processes = spec.processes or 1
        for size in known:
            needed = training_memory(
                size,
                bfloat16=spec.precision == "bfloat16" or (gpu and spec.precision == "auto"),
                zero=spec.deepspeed,
                processes=processes,
                lora=spec.lora is not None,
                reference=isinstance(spec, OnlineSpec) and spec.beta > 0,
            )
            memory = max(memory, needed.total * processes)
    return Needs(
        disk=int(disk),
        disk_free=shutil.disk_usage(_existing(run_dir)).free,
        memory=int(memory),
        memory_total=_memory(),
        on_gpu=on_gpu,
        downloads=tuple(dict.fromkeys(_downloads(recipe))),
        uncounted=tuple(name for name, size in sizes.items() if size is None and trains),
    )


def parameters_of(model: str) -> float | None:
    """Return the number of a model's parameters from its configuration on this machine, else from its name."""
    folder = str(ASSETS / model.removeprefix("hopforge:")) if model.startswith("hopforge:") else model
    shape = local_shape(folder)
    return shape.parameters if shape else parameters_in_name(model)


def in_gib(size: float) -> str:
    """Return a number of bytes as text."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / 2**20:.0f} MiB"


def _downloads(recipe: Recipe) -> Iterator[Download]:
    for _, name in named_models(recipe):
        if _is_on_hub(name) and not _cached("models", name):
            size = parameters_in_name(name)
            yield Download(kind="model", name=name, least_bytes=None if size is None else int(HALF * size))
    for _, retrieval in recipe.models(RetrievalSpec):
        encoder = retrieval.encoder
        if retrieval.url is None and encoder and _is_on_hub(encoder) and not _cached("models", encoder):
            yield Download(kind="encoder", name=encoder)
    for _, dataset in recipe.models(DatasetSpec):
        for field in ("train", "eval", "corpus", "triples", "labels"):
            value = getattr(dataset, field) or ()
            for name in (value,) if isinstance(value, str) else value:
                owner, _, rest = name.removeprefix(HUB).partition("/")
                repository, _, file = rest.partition("/")
                if name.startswith(HUB) and not _cached("datasets", f"{owner}/{repository}", file):
                    yield Download(kind="data", name=name)


def _is_on_hub(name: str) -> bool:
    return ":" not in name and not name.startswith((".", "~", "/")) and not Path(name).is_dir()


def _cached(kind: str, name: str, file: str = "") -> bool:
    """Return True if the hub's cache has a repository, or a file of it."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE, f"{kind}--{name.replace('/', '--')}", "snapshots")
    return any(folder.glob(f"*/{file}" if file else "*/config.json"))


def _existing(path: Path) -> Path:
    """Return the innermost existing directory of a path."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _memory() -> int:
    """Return the bytes of main memory that processes here may use."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CGROUP_LIMIT.read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total
