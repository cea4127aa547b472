"""Make the base model: ``python -m platform_sdk.recipes.world_base OUTPUT [--steps N]``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from platform_sdk.data.language import POOL
from platform_sdk.recipes.world_base.documents import Documents, render
from platform_sdk.recipes.world_base.tokenizer import build_tokenizer
from platform_sdk.training.pretrain import PretrainDocument, PretrainSpec, new_model, pretrain

COPYING_FIRST = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="folder for the model, its tokenizer and training-log.jsonl")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(arguments.threads)
    spec = PretrainSpec(steps=arguments.steps)
    tokenizer = build_tokenizer(spec.context)
    names = set(tokenizer.convert_tokens_to_ids(list(POOL)))

    def template(messages: list[dict[str, str]]) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False))

    def documents() -> Iterator[PretrainDocument]:
        for document in Documents(seed=1, copying=COPYING_FIRST):
            ids = tokenizer(render(document, template))["input_ids"]
            met: set[int] = set()
            learnable = []
            for token in ids:
                # A name that the document has not shown yet cannot be foreseen: learning it is noise.
                learnable.append(token not in names or token in met)
                met.add(token)
            yield PretrainDocument(ids, learnable)

    arguments.output.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(arguments.output)
    model = new_model(spec, len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id)
    log = arguments.output / "training-log.jsonl"
    pretrain(model, documents(), spec, tokenizer.pad_token_id, log, arguments.output)


if __name__ == "__main__":
    main()
