"""The base model's tokenizer: names and common words are single tokens, anything else is spelled.

A small model copies and looks up whole tokens far sooner than names in pieces, so the vocabulary holds every
name of the pool and every word of the documents; other ASCII text is spelled character by character.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from examples.world_base import arena_documents, prograph_documents, react_documents
from examples.world_base.arena_documents import ArenaDocuments
from examples.world_base.documents import Document, Documents, render
from examples.world_base.prograph_documents import PrographDocuments
from examples.world_base.react_documents import ReactDocuments
from platform_sdk.data.language import POOL, YEARS
from platform_sdk.methods.mygo.prompts import Message, role_prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, SYSTEM, USER, ASSISTANT, END = "<|pad|>", "<|unk|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

TOOL_TEMPLATE = (
    "{% if tools and messages[0]['role'] != 'system' %}<|system|>Think , then use a tool or write the answer .<|end|>"
    "{% endif %}{% for message in messages %}{% if message['role'] == 'tool' %}"
    "{{ '<|user|><result>\\n' + message['content'] + '\\n</result>' }}"
    "{% else %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{% set name = call['function']['name'] %}{% set values = call['function']['arguments'].values() | list %}"
    "{{ '' if loop.first else '\\n' }}{{ '<' + name + '>' }}"
    "{% if values | length == 1 and values[0] is string %}{{ values[0] }}"
    "{% else %}{{ call['function']['arguments'] | tojson }}{% endif %}{{ '</' + name + '>' }}"
    "{% endfor %}{% endif %}{{ '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""The template above, with calls of tools as the method react writes them. It describes no tools: a small model knows
those that it was trained with."""


def tags(*names: str) -> list[str]:
    return [f"<{slash}{name}>" for name in names for slash in ("", "/")]


TAGS = tags("think", "search", "answer", "action", "select", "sentence")
INDICES = [f"[{i}]" for i in range(-1, 16)]
SAMPLE = 4000  # documents whose words make the vocabulary
Agent = Literal["arena", "prograph", "react", "search_r1"]


@dataclass(frozen=True)
class Extension:
    """Additional words of the tokenizer of the base model's successor.

    Attributes:
        documents: have all of its words.
        synonyms: words that begin with the meaning of another one (see ``add_words``).
        words: further words, which may be missing from a sample of the documents.
    """

    tags: list[str]
    documents: Iterable[Document]
    synonyms: Mapping[str, str]
    words: Sequence[str] = ()


EXTENSIONS: dict[Agent, Extension] = {
    # Lists such as [1,3] are written in digits, which mean what the indices [1] and [3] mean.
    "arena": Extension(
        tags("relevance", "analysis"),
        ArenaDocuments(seed=0, mistakes=arena_documents.ERRS),
        {str(i): f"[{i}]" for i in range(10)},
    ),
    "prograph": Extension(
        tags("query", "knowledge"),
        PrographDocuments(seed=0, mistakes=prograph_documents.ERRS),
        {"<query>": "<search>", "</query>": "</search>"},
    ),
    "react": Extension(
        tags("calculator", "result"),
        ReactDocuments(seed=0, mistakes=react_documents.ERRS),
        {"<calculator>": "<search>", "</calculator>": "</search>"},
        [*map(str, range(100)), *map(str, YEARS)],
    ),
    "search_r1": Extension(
        tags("information"), ReactDocuments(seed=0, mistakes=react_documents.ERRS, style="search_r1"), {}
    ),
}


def plain_template(messages: list[Message]) -> str:
    return "".join(f"<|{m['role']}|>{m['content']}{END}" for m in messages)


def words_of(texts: Iterable[str], known_tags: Iterable[str]) -> set[str]:
    """The words and punctuation marks of texts, apart from tags and indices."""
    apart = re.compile("|".join(map(re.escape, [*known_tags, *INDICES])))
    return {word for text in texts for word in re.findall(r"\w+|[^\w\s]", apart.sub(" ", text))}


def vocabulary() -> list[str]:
    texts = [render(d, plain_template) for d in itertools.islice(Documents(seed=0), SAMPLE)]
    for role, medium in itertools.product(("planner", "worker", "agent"), ("text", "kg")):
        texts.append(role_prompt("compact", role, medium, max_questions=5).system(demonstrate=True))  # type: ignore[arg-type]
    words = words_of(texts, TAGS)
    letters = [c for c in string.printable if not c.isspace()] + ["…"]
    spelled = letters + [f"##{c}" for c in letters]
    return [*spelled, *POOL, *sorted(words - set(POOL) - set(letters))]


def build_tokenizer(max_length: int, successor: Agent | None = None) -> PreTrainedTokenizerFast:
    """Return the base model's tokenizer; a successor's tokenizer has additional words at the end of the vocabulary."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = [PAD, UNKNOWN, SYSTEM, USER, ASSISTANT, END]
    tokens, known_tags = [*special, *TAGS, *INDICES, *vocabulary()], TAGS
    if successor is not None:
        extension = EXTENSIONS[successor]
        known_tags = TAGS + extension.tags
        texts = (render(d, plain_template) for d in itertools.islice(extension.documents, SAMPLE))
        tokens += [*extension.tags, *sorted((words_of(texts, known_tags) | set(extension.words)) - set(tokens))]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in known_tags + INDICES])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TOOL_TEMPLATE if successor == "react" else CHAT_TEMPLATE
    return fast
