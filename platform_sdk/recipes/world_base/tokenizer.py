"""The base model's tokenizer: names and common words are single tokens, anything else is spelled.

A small model copies and looks up whole tokens far sooner than names in pieces, so the vocabulary holds every
name of the pool and every word of the documents; other ASCII text is spelled character by character.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterable
from typing import TYPE_CHECKING

from platform_sdk.data.language import POOL
from platform_sdk.recipes.mygo.prompts import Message, role_prompt
from platform_sdk.recipes.world_base.arena_documents import ERRS, ArenaDocuments
from platform_sdk.recipes.world_base.documents import Documents, render

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, SYSTEM, USER, ASSISTANT, END = "<|pad|>", "<|unk|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
TAGS = [f"<{slash}{t}>" for t in ("think", "search", "answer", "action", "select", "sentence") for slash in ("", "/")]
ARENA_TAGS = [f"<{slash}{t}>" for t in ("relevance", "analysis") for slash in ("", "/")]
INDICES = [f"[{i}]" for i in range(-1, 16)]
SAMPLE = 4000  # documents whose words make the vocabulary


def plain_template(messages: list[Message]) -> str:
    return "".join(f"<|{m['role']}|>{m['content']}{END}" for m in messages)


def words_of(texts: Iterable[str], tags: Iterable[str]) -> set[str]:
    """The words and punctuation marks of texts, apart from tags and indices."""
    apart = re.compile("|".join(map(re.escape, [*tags, *INDICES])))
    return {word for text in texts for word in re.findall(r"\w+|[^\w\s]", apart.sub(" ", text))}


def vocabulary() -> list[str]:
    texts = [render(d, plain_template) for d in itertools.islice(Documents(seed=0), SAMPLE)]
    for role, medium in itertools.product(("planner", "worker", "agent"), ("text", "kg")):
        texts.append(role_prompt("compact", role, medium, max_questions=5).system(demonstrate=True))  # type: ignore[arg-type]
    words = words_of(texts, TAGS)
    letters = [c for c in string.printable if not c.isspace()] + ["…"]
    spelled = letters + [f"##{c}" for c in letters]
    return [*spelled, *POOL, *sorted(words - set(POOL) - set(letters))]


def arena_words(known: Iterable[str]) -> list[str]:
    """The words of ARENA's documents that are not among the known ones."""
    documents = itertools.islice(ArenaDocuments(seed=0, mistakes=ERRS), SAMPLE)
    return sorted(words_of((render(d, plain_template) for d in documents), TAGS + ARENA_TAGS) - set(known))


def build_tokenizer(max_length: int, *, arena: bool = False) -> PreTrainedTokenizerFast:
    """The tokenizer of the base model; that of its successor for ARENA knows some more words, behind all others."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = [PAD, UNKNOWN, SYSTEM, USER, ASSISTANT, END]
    tokens, tags = [*special, *TAGS, *INDICES, *vocabulary()], TAGS
    if arena:
        tags = TAGS + ARENA_TAGS
        tokens += [*ARENA_TAGS, *arena_words(tokens)]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in tags + INDICES])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
