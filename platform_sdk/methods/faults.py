"""Faults of a recipe on every machine: settings that exclude each other, code and models that exist nowhere.

The checks import no code of the recipe and load no model or data, so they take no time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

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
from platform_sdk.config.dataset import FORMATS, WITH_ENTITIES, WITH_SENTENCES, DatasetSpec
from platform_sdk.config.environment import ENVIRONMENTS, shipped_method
from platform_sdk.config.errors import Code
from platform_sdk.config.graph import GraphSpec
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.retrieval import GRAPH_METHODS, SCOPES, RetrievalSpec, Searched
from platform_sdk.config.sampling import EngineSpec, SamplingSpec
from platform_sdk.config.selection import NO_OWN_REWARD, SelectionSpec
from platform_sdk.config.shipped import ASSETS, GGUF_PACKAGES
from platform_sdk.config.source import Fault, FieldPath, Problem, dotted, load_source, suggestion
from platform_sdk.config.task import FromParameter
from platform_sdk.methods.fit import misfits
from platform_sdk.methods.program.settings import SessionsSpec

if TYPE_CHECKING:
    from platform_sdk.config.cluster import ClusterSpec

Found = Fault | tuple[FieldPath, str] | tuple[FieldPath, str, Code]
POLICY = "policy"
"""The component that finds a model; its inputs ``name`` and ``worker_name`` are models' names."""
GRAPH = "graph"
"""The component that builds a knowledge hypergraph."""
GIVE_TRIPLES = "name their files (hopforge convert --from wikidata makes one), or give a retrieval.url"


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
        *_entities(recipe),
        *_graph(recipe),
        *_shipped_models(recipe),
    ]
    on_cluster = _beyond_jobs(recipe, cluster) if cluster else ()
    return placed(recipe, [*found, *on_cluster]) or misfits(recipe, cluster)


def placed(recipe: Recipe, found: list[Found]) -> list[Problem]:
    """Return faults with the lines of the recipe that they are at, or of its pipeline."""
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
        yield ("method",), f"there is no method {name}; {suggestion(name, shipped, module=True)}"


def _agent(recipe: Recipe) -> Iterator[Found]:
    """Yield the agent's own rule about environment and retrieval, before a corpus has been indexed for hours.

    Its steps apply the rule too (``Method.context``), also to modules of the user's own, which are not imported here.
    """
    for task in recipe.plan:
        agent, known = task.inputs.get("agent"), recipe.known_inputs(task)
        rule = getattr(recipe.structs.get(agent.name), "misfit", None) if isinstance(agent, FromParameter) else None
        if rule is None or not {"environment", "retrieval"} <= known.keys():
            continue
        method = known["retrieval"].get("method") or shipped_method(known["environment"])
        if method is None or "." in method:
            continue
        if fault := rule(known["environment"], Searched(method, SCOPES.get(method, ()))):
            name, *rest = fault.path
            wire = task.inputs[name]
            yield fault._replace(path=(wire.name if isinstance(wire, FromParameter) else name, *rest))


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
    if not any(wire == FromParameter("synthesis") for task in recipe.plan for wire in task.inputs.values()):
        return
    if spec.unit == "sentence" and (fault := _no_sentences(recipe)):
        yield fault
    if teacher == "rules" and (fault := spec.rules_fault()):
        yield fault
    temperature = getattr(recipe.structs.get("teaching"), "temperature", 1.0)
    if teacher == "llm" and (fault := spec.model_fault(temperature)):
        yield fault
    if teacher == "llm" and spec.mode != "abductive":
        for name in getattr(learning, "needing_gold", ()):
            yield ("learning", name), settings.NO_GOLD


def _no_sentences(recipe: Recipe) -> Fault | None:
    """Return the fault if training questions have no annotated sentences; of modules of one's own, only steps know."""
    from platform_sdk.methods.evipath import settings

    path = ("synthesis", "unit")
    if _in_graph(recipe):
        return Fault(path, f"sentence: {settings.NO_SENTENCES}")
    for _, dataset in recipe.models(DatasetSpec):
        trains = dataset.train or dataset.format == "world"
        if trains and "." not in dataset.format and dataset.format not in WITH_SENTENCES:
            lacking = f"questions of format {dataset.format} have no annotated sentences"
            return Fault(path, f"sentence: {lacking}; set synthesis.unit: passage")
    return None


def _triples(recipe: Recipe) -> Iterator[Found]:
    environment = recipe.parameters.get("environment", "")
    specs = [spec for _, spec in recipe.models(RetrievalSpec) if spec.url is None]
    there = [dataset.format == "world" or dataset.triples for _, dataset in recipe.models(DatasetSpec)]
    methods = [spec.method or shipped_method(environment) for spec in specs]
    if there and not any(there) and "triples" in methods:
        yield ("dataset", "triples"), f"is empty, but environment {environment} searches triples; {GIVE_TRIPLES}"


def _entities(recipe: Recipe) -> Iterator[Found]:
    """Yield the formats whose questions name no entity with which a search in a knowledge graph could start."""
    lacking = FORMATS.keys() - WITH_ENTITIES if _in_graph(recipe) else ()
    for path, dataset in recipe.models(DatasetSpec):
        if dataset.format in lacking:
            start = f"with which a search in environment {recipe.parameters['environment']} starts"
            told = f"{dataset.format}: its questions name no entity {start}"
            yield (*path, "format"), f"{told}; formats that can are {', '.join(WITH_ENTITIES)}"


def _in_graph(recipe: Recipe) -> bool:
    """Return True if the recipe's environment is a shipped one whose searches return facts of a knowledge graph."""
    environment = ENVIRONMENTS.get(recipe.parameters.get("environment", ""))
    return environment is not None and environment.medium == "kg"


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


def named_models(recipe: Recipe) -> Iterator[tuple[FieldPath, str]]:
    """Yield the names of the models that a recipe begins with, each with its place."""
    for task in recipe.plan:
        known = recipe.known_inputs(task) if task.component == POLICY else {}
        for value in (known.get("name"), known.get("worker_name")):
            if isinstance(value, str) and value:
                path = next((name for name, one in recipe.parameters.items() if one == value), "model")
                yield (path,), value
    for place, graph in recipe.models(GraphSpec):
        if graph.model is not None:
            yield (*place, "model"), graph.model


def _beyond_jobs(recipe: Recipe, cluster: ClusterSpec) -> Iterator[Found]:
    for path, engine in recipe.models(EngineSpec):
        if (engine.engine == "vllm" or engine.brings_server) and cluster.job.sampler is None:
            yield (*path, "engine"), "samples with vLLM, but the cluster's file gives job.sampler no image; add one"
