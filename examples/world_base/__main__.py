"""Make the base models, in stages that each start from the one before.

``python -m examples.world_base first A`` learns the language with an agent that errs most of the time (some
35 minutes on one core); ``… second B --start A`` and ``… third C --start B`` go on with agents that err less (7 and 4
minutes), so that a chain of two hops succeeds often enough to learn from. C is ``hopforge:world-base``.

``… arena-reading D --start C`` teaches ARENA's form by an agent without fault (12 minutes), ``… arena E --start D`` its
mistakes (3 minutes). E is ``hopforge:world-base-arena``.

``… prograph-reading D --start C`` and ``… prograph E --start D`` do the same for ProGraph-R1's turns (10 and 2
minutes). E is ``hopforge:world-base-prograph``.

``… react-reading D --start C`` and ``… react E --start D`` do the same for ReAct with search and calculator. E is
``hopforge:world-base-react``.

``… search-r1-reading D --start C`` and ``… search-r1 E --start D`` do the same for search in the format of Search-R1. E
is ``hopforge:world-base-search-r1``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from examples.world_base import arena_documents, prograph_documents, react_documents
from examples.world_base.arena_documents import ArenaDocuments
from examples.world_base.documents import (
    ERRS_LESS,
    ERRS_OFTEN,
    ERRS_SOMETIMES,
    Document,
    Documents,
    render,
)
from examples.world_base.prograph_documents import PrographDocuments
from examples.world_base.react_documents import ReactDocuments
from examples.world_base.tokenizer import ASSISTANT, END, EXTENSIONS, Agent, build_tokenizer
from platform_sdk.data.language import POOL
from platform_sdk.training.pretrain import PretrainDocument, PretrainSpec, add_words, load_model, new_model, pretrain


@dataclass(frozen=True)
class Stage:
    """One training run: its schedule and its documents.

    A stage for a ``successor`` of the base model learns nothing of a dialogue but the replies.
    """

    spec: PretrainSpec
    documents: Iterable[Document]
    successor: Agent | None = None


STAGES = {
    "first": Stage(PretrainSpec(steps=4000), Documents(seed=1, noise=ERRS_OFTEN, copying=1000)),
    "second": Stage(
        PretrainSpec(steps=700, warmup_steps=20, decay_share=1.0, muon_rate=0.005, adam_rate=5e-4),
        Documents(seed=2, noise=ERRS_LESS),
    ),
    "third": Stage(
        PretrainSpec(steps=450, warmup_steps=20, decay_share=1.0, muon_rate=0.005, adam_rate=5e-4),
        Documents(seed=3, noise=ERRS_SOMETIMES),
    ),
    "arena-reading": Stage(
        PretrainSpec(steps=1300, warmup_steps=50, decay_share=0.4),
        ArenaDocuments(seed=4, mistakes=arena_documents.FAULTLESS, brief=0.3, pointing=0.4),
        "arena",
    ),
    "arena": Stage(
        PretrainSpec(steps=300, warmup_steps=20, decay_share=1.0, muon_rate=0.003, adam_rate=3e-4),
        ArenaDocuments(seed=5, mistakes=arena_documents.ERRS),
        "arena",
    ),
    "prograph-reading": Stage(
        PretrainSpec(steps=1100, warmup_steps=30, decay_share=0.4),
        PrographDocuments(seed=6, mistakes=prograph_documents.FAULTLESS),
        "prograph",
    ),
    "prograph": Stage(
        PretrainSpec(steps=240, warmup_steps=20, decay_share=1.0, muon_rate=0.003, adam_rate=3e-4),
        PrographDocuments(seed=7, mistakes=prograph_documents.ERRS),
        "prograph",
    ),
    "react-reading": Stage(
        PretrainSpec(steps=1300, warmup_steps=30, decay_share=0.4),
        ReactDocuments(seed=8, mistakes=react_documents.FAULTLESS),
        "react",
    ),
    "react": Stage(
        PretrainSpec(steps=240, warmup_steps=20, decay_share=1.0, muon_rate=0.003, adam_rate=3e-4),
        ReactDocuments(seed=9, mistakes=react_documents.ERRS),
        "react",
    ),
    "search-r1-reading": Stage(
        PretrainSpec(steps=1100, warmup_steps=30, decay_share=0.4),
        ReactDocuments(seed=10, mistakes=react_documents.FAULTLESS, style="search_r1"),
        "search_r1",
    ),
    "search-r1": Stage(
        PretrainSpec(steps=240, warmup_steps=20, decay_share=1.0, muon_rate=0.003, adam_rate=3e-4),
        ReactDocuments(seed=11, mistakes=react_documents.ERRS, style="search_r1"),
        "search_r1",
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
    stage = STAGES[arguments.stage]
    tokenizer = build_tokenizer(stage.spec.context, stage.successor)
    names = set(tokenizer.convert_tokens_to_ids(list(POOL)))
    reply, end = tokenizer.convert_tokens_to_ids([ASSISTANT, END])

    def template(messages: list[dict[str, str]]) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False))

    def documents() -> Iterator[PretrainDocument]:
        for document in stage.documents:
            ids = tokenizer(render(document, template))["input_ids"]
            met: set[int] = set()
            learnable = []
            for token in ids:
                # A name that the document has not shown yet cannot be foreseen: learning it is noise.
                learnable.append(token not in names or token in met)
                met.add(token)
            if stage.successor is not None and not isinstance(document, str):
                learnable = [a and b for a, b in zip(learnable, in_replies(ids, reply, end), strict=True)]
            yield PretrainDocument(ids, learnable)

    arguments.output.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(arguments.output)
    if arguments.start is None:
        model = new_model(stage.spec, len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id)
    else:
        model = load_model(arguments.start, stage.spec.seed)
        if stage.successor is not None and len(tokenizer) > model.config.vocab_size:
            number = tokenizer.convert_tokens_to_ids
            synonyms = {number(word): number(like) for word, like in EXTENSIONS[stage.successor].synonyms.items()}
            add_words(model, len(tokenizer), synonyms, stage.spec.seed)
    log = arguments.output / f"training-log-{arguments.stage}.jsonl"
    pretrain(model, documents(), stage.spec, tokenizer.pad_token_id, log, arguments.output)


def in_replies(ids: list[int], reply: int, end: int) -> list[bool]:
    """Return for each token of a dialogue whether the agent wrote it."""
    inside, found = False, []
    for token in ids:
        found.append(inside)
        inside = token == reply or (inside and token != end)
    return found


if __name__ == "__main__":
    main()
