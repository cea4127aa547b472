"""Shared parts of the scripts: models of known sizes with random weights, timing, and output of results."""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from benchmarks.gpu.model import Card, card_of
from platform_sdk.sizing.shape import ModelShape, shape_of
from platform_sdk.training.examples import Example


def _config(
    hidden: int, layers: int, heads: int, kv: int, head: int, ff: int, vocabulary: int, tied: bool
) -> dict[str, Any]:
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "head_dim": head, "intermediate_size": ff, "vocab_size": vocabulary, "tie_word_embeddings": tied,
        "max_position_embeddings": 32768, "eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 2,
    }  # fmt: skip


MODELS = {
    "tiny": _config(64, 2, 4, 2, 32, 96, 300, True),
    "135M": _config(576, 30, 9, 3, 64, 1536, 49152, True),
    "0.6B": _config(1024, 28, 16, 8, 128, 3072, 151936, True),
    "3B": _config(2048, 36, 16, 2, 128, 11008, 151936, True),
    "7B/8": _config(3584, 8, 28, 4, 128, 18944, 152064, False),  # eight of its 28 layers: the whole does not fit
}


@dataclass(frozen=True)
class Setup:
    """A benchmark's model, saved in a folder, and the card it runs on (None: a CPU, or one that is not known)."""

    name: str
    path: Path
    shape: ModelShape
    card: Card | None
    device: str
    dry: bool

    @property
    def precision(self) -> str:
        return "bfloat16" if self.device == "cuda" else "float32"

    def load(self, attention: str = "sdpa") -> Any:
        """Return the bare model of transformers, on the device, in float32."""
        loaded: Any = Qwen2ForCausalLM.from_pretrained(self.path, dtype=torch.float32, attn_implementation=attention)
        return loaded.to(self.device)

    def autocast(self) -> Any:
        return torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bfloat16")


def main(
    description: str,
    measure: Callable[[Setup], list[dict[str, Any]]],
    models: tuple[str, ...] = ("0.6B", "3B", "7B/8"),
) -> None:
    """Measure the models that the command line names, and print a table of the rows."""
    given = _options(description, models)
    rows = []
    for name in given.model:
        with _setup(name, given.dry_run) as case:
            rows += measure(case)
    _tell(given, rows)


def _options(description: str, models: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", choices=models, action="append", help="default: all")
    parser.add_argument("--dry-run", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--json", type=Path, help="file for the outcome")
    given = parser.parse_args()
    given.model = ["tiny"] if given.dry_run else given.model or list(models)
    if not given.dry_run and not torch.cuda.is_available():
        parser.error("torch sees no GPU; --dry-run takes a tiny model on the CPU")
    return given


@contextmanager
def _setup(name: str, dry: bool) -> Iterator[Setup]:
    """Draw a model's weights, and save it with a tokenizer for as long as the benchmark lasts."""
    torch.manual_seed(0)
    torch.set_num_threads(1 if dry else torch.get_num_threads())
    device = "cpu" if dry else "cuda"
    config = MODELS[name]
    with tempfile.TemporaryDirectory(prefix="hopforge-benchmark-") as folder:
        path = Path(folder, "model")
        with torch.device(device):
            model = Qwen2ForCausalLM(Qwen2Config(**config)).bfloat16()
        model.save_pretrained(path)
        del model
        words = {f"w{i}": i for i in range(config["vocab_size"])}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="w1").save_pretrained(path)
        card = None if dry else card_of(torch.cuda.get_device_name())
        yield Setup(name, path, shape_of(config), card, device, dry)


def dialogues(vocabulary: int, count: int, prompt: int, answer: int, *, attempts: int = 1) -> list[Example]:
    """Draw ``count`` prompts with ``attempts`` answers each, and an advantage for every other of these."""
    draw = random.Random(0)
    made = []
    for number in range(count):
        begin = tuple(draw.randrange(3, vocabulary) for _ in range(prompt))
        for attempt in range(attempts):
            tokens = begin + tuple(draw.randrange(3, vocabulary) for _ in range(answer))
            mask = (0,) * prompt + (1,) * answer
            sign = 1.0 if attempt % 2 else -1.0
            advantages, logprobs = (tuple(value * m for m in mask) for value in (sign, -10.0))
            made.append(Example(f"{number}#{attempt}", tokens, mask, logprobs, "w", advantages))
    return made


def seconds(work: Callable[[], Any], *, repeats: int = 3) -> float:
    """Return the least time of ``work``, after one run that does not count; a GPU is waited for."""
    times = []
    for _ in range(1 + repeats):
        _synchronise()
        began = time.perf_counter()
        work()
        _synchronise()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _tell(given: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, and write them to the file that was asked for."""
    names = list(rows[0])
    table = [names, *[[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]]
    widths = [max(len(line[column]) for line in table) for column in range(len(names))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    if given.json:
        card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        given.json.write_text(json.dumps({"card": card, "torch": torch.__version__, "rows": rows}, indent=1))
