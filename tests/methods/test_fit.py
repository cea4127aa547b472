"""Combinations of recipe and cluster that cannot work are refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from platform_sdk.config.cluster import ClusterSpec, bytes_of
from platform_sdk.config.recipe import load_recipe
from platform_sdk.methods.fit import misfits

PIPELINES = Path(__file__).parents[2] / "pipelines"
MYGO, GRPO = PIPELINES / "mygo/2wiki-kg-qwen2.5-7b.yaml", PIPELINES / "mygo/2wiki-kg-qwen2.5-7b-grpo.yaml"
LITE = ("retrieval.url=null", "sampling.engine.searching=0")
OWN = ("sampling.engine.engine=vllm",)  # engines of the processes that sample


def cluster(*, gpus: int, memory: str | None = None) -> ClusterSpec:
    job = {"image": "t", "resources": {"gpus": gpus, "gpu_memory": memory}, "sampler": {"image": "s"}}
    return ClusterSpec.model_validate({"workspace": {"claim": "w"}, "launcher_image": "l", "job": job})


def told(recipe: Path, *overrides: str, on: ClusterSpec | None = None) -> list[str]:
    return [f"{problem.field}: {problem.message}" for problem in misfits(load_recipe(recipe, overrides), on)]


@pytest.fixture
def qwen(tmp_path: Path) -> str:
    """The configuration of Qwen2.5-7B, without weights."""
    config = {
        "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "intermediate_size": 18944, "vocab_size": 152064,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    return f"model={tmp_path}"


LARGE = [MYGO, GRPO, *sorted(PIPELINES.glob("*/*[78]b.yaml"))]


@pytest.mark.parametrize("recipe", LARGE, ids=lambda path: path.stem)
def test_shipped_recipes_fit_a_node_of_eight_gpus(recipe: Path) -> None:
    assert told(recipe, on=cluster(gpus=7, memory="80Gi")) == []


def test_shipped_recipe_of_a_small_model_fits_one_gpu_and_several_with_a_retriever_service() -> None:
    recipe = PIPELINES / "prograph/2wiki-qwen2.5-3b.yaml"
    assert told(recipe, on=cluster(gpus=1, memory="80Gi")) == []
    assert told(recipe, "retrieval.url=http://retriever:8080", on=cluster(gpus=7, memory="80Gi")) == []


def test_milvus_lite_is_refused_where_jobs_have_several_processes() -> None:
    [problem] = told(MYGO, *OWN, *LITE, on=cluster(gpus=2))
    assert problem.startswith("parameters.retrieval: the cluster's jobs have 2 processes, but only one at a time")
    assert told(MYGO, *OWN, *LITE, on=cluster(gpus=1)) == []
    assert told(MYGO, *OWN, *LITE, "sampling.engine.extra={tensor_parallel_size: 4}", on=cluster(gpus=4)) == []
    assert len(told(GRPO, *LITE, on=cluster(gpus=2))) == 1, "processes that train search too"


def test_tensor_parallelism_that_does_not_divide_the_heads_is_refused(qwen: str) -> None:
    [problem] = told(MYGO, qwen, "sampling.engine.extra={tensor_parallel_size: 3}")
    assert problem.startswith("parameters.sampling.engine.extra.tensor_parallel_size: 28 attention heads (4 of")
    assert told(MYGO, qwen, "sampling.engine.extra={tensor_parallel_size: 4}") == []


@pytest.mark.parametrize("content", ["[]", "null", '{"hidden_size": 64, "num_attention_heads": 0}', "{", ""])
def test_a_damaged_configuration_is_left_to_the_run(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert told(MYGO, f"model={tmp_path}", "sampling.engine.extra={tensor_parallel_size: 4}") == []


def test_vllm_in_processes_that_train_is_refused() -> None:
    [problem] = told(GRPO, "sampling.engine.engine=vllm")
    assert problem.startswith("parameters.sampling.engine.engine: vllm takes nearly all memory of the GPU")
    assert told(GRPO, "sampling.engine.engine=vllm", "sampling.engine.extra={gpu_memory_utilization: 0.3}") == []


def test_engine_of_the_graph_is_checked_against_its_own_model_and_not_against_training(qwen: str) -> None:
    world = PIPELINES / "prograph/world.yaml"
    own = ("graph.extractor=llm", f"graph.{qwen}", "graph.engine.engine=vllm", "graph.engine.device=cuda")
    assert told(world, *own) == []
    assert told(world, *own, "graph.engine.extra={tensor_parallel_size: 4}") == []
    [problem] = told(world, *own, "graph.engine.extra={tensor_parallel_size: 3}")
    assert problem.startswith("parameters.graph.engine.extra.tensor_parallel_size: 28 attention heads (4 of")


@pytest.mark.parametrize("given", [True, False], ids=["by its configuration", "by its name"])
def test_a_model_that_plainly_exceeds_the_memory_is_refused(qwen: str, given: bool) -> None:
    overrides = [qwen] if given else []
    full = told(MYGO, *overrides, "training.deepspeed=zero2", "warmup.training.deepspeed=zero3",
                on=cluster(gpus=1, memory="80Gi"))  # fmt: skip
    assert len(full) == 2
    assert all("on each of 1 GPUs before any activation, but a GPU has 80 GiB" in problem for problem in full)
    assert "give more GPUs: ZeRO has nothing to divide on one, or set lora" in full[0]
    assert told(MYGO, *overrides, on=cluster(gpus=1)) == [], "of a GPU whose memory is not known nothing is said"


def test_quantities_in_bytes_and_cores() -> None:
    assert [bytes_of(text) for text in ("80Gi", "1.5G", "4096")] == [80 * 2**30, 1.5e9, 4096]
    assert [bytes_of(text) for text in ("9m", "500m", "1k")] == [0.009, 0.5, 1000]


def test_searches_in_threads_need_a_service() -> None:
    assert told(MYGO, "sampling.engine.searching=64") == []
    [problem] = told(MYGO, *OWN, *LITE, "sampling.engine.searching=64")
    assert problem.endswith("searches in threads need a service: set retrieval.url, or searching 0")
