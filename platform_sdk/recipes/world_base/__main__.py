"""Make the base model, in three stages.

``python -m platform_sdk.recipes.world_base first A`` learns the language with an agent that errs most of the time (some
35 minutes on one core); ``… second B --start A`` and ``… third C --start B`` go on with agents that err less (7 and 4
minutes), so that a chain of two hops succeeds often enough to learn from.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from platform_sdk.data.language import POOL
from platform_sdk.recipes.world_base.documents import ERRS_LESS, ERRS_OFTEN, ERRS_SOMETIMES, Documents, render
from platform_sdk.recipes.world_base.tokenizer import build_tokenizer
from platform_sdk.training.pretrain import PretrainDocument, PretrainSpec, load_model, new_model, pretrain

STAGES = {
    "first": (PretrainSpec(steps=4000), Documents(seed=1, noise=ERRS_OFTEN, copying=1000)),
    "second": (
        PretrainSpec(steps=700, warmup_steps=20, decay_share=1.0, muon_rate=0.005, adam_rate=5e-4),
        Documents(seed=2, noise=ERRS_LESS),
    ),
    "third": (
        PretrainSpec(steps=450, warmup_steps=20, decay_share=1.0, muon_rate=0.005, adam_rate=5e-4),
        Documents(seed=3, noise=ERRS_SOMETIMES),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("output", type=Path, help="folder for the model, its tokenizer and its training log")
    parser.add_argument("--start", type=Path, help="folder of the model that the stage before made")
    arguments = parser.parse_args()
    if (arguments.stage == "first") != (arguments.start is None):
        parser.error("--start FOLDER is for the stages after the first, which need it")
    spec, texts = STAGES[arguments.stage]
    tokenizer = build_tokenizer(spec.context)
    names = set(tokenizer.convert_tokens_to_ids(list(POOL)))

    def template(messages: list[dict[str, str]]) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False))

    def documents() -> Iterator[PretrainDocument]:
        for document in texts:
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
    if arguments.start is None:
        model = new_model(spec, len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id)
    else:
        model = load_model(arguments.start)
    log = arguments.output / f"training-log-{arguments.stage}.jsonl"
    pretrain(model, documents(), spec, tokenizer.pad_token_id, log, arguments.output)


if __name__ == "__main__":
    main()
