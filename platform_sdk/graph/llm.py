"""Extraction by a language model: records in lines, a marker between fields, and an end marker.

After its first answer the model is prompted a few times for missed facts, until it gives none. A line that is not a
record is kept as malformed, like the last line of an answer cut off at ``max_tokens``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from platform_sdk.errors import UserError
from platform_sdk.graph.chunks import Chunk
from platform_sdk.graph.facts import Extraction, Fact, Mention
from platform_sdk.records import Source
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.engine import SamplingEngine, SamplingParams

VERSION = 2
FIELD, END = "<|>", "<done>"

SYSTEM = f"""You extract facts from a text. For each fact write one line
fact{FIELD}SENTENCE
with a sentence of the text that states it, and below it one line for each entity in it:
entity{FIELD}NAME{FIELD}TYPE{FIELD}DESCRIPTION
Write nothing else. After the last line write {END}"""
MISSED = (
    f"Was any fact or entity missed? Write the missing ones in the same form, then {END}. Write only {END} if none."
)


def extract(engine: SamplingEngine, chunks: Sequence[Chunk], passes: int, max_tokens: int) -> Iterator[Extraction]:
    """Extract the facts of chunks, sampled concurrently at temperature 0.

    Args:
        engine: The model.
        chunks: The chunks to extract from.
        passes: Number of prompts for missed facts.
        max_tokens: Maximum tokens of one answer.
    """
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, stop=(END,))
    opening = [f"{chunk.passage.title}\n\n{chunk.text}" for chunk in chunks]
    dialogues = [Dialogue(engine.tokenizer, SYSTEM, text) for text in opening]
    answers: list[list[str]] = [[] for _ in chunks]
    torn: list[list[str]] = [[] for _ in chunks]
    asked = list(range(len(chunks)))
    for chunk, dialogue in zip(chunks, dialogues, strict=True):
        if len(dialogue.token_ids) + max_tokens > engine.max_model_len:
            raise UserError(
                f"passage {chunk.passage.id}: a prompt of {len(dialogue.token_ids)} tokens and an answer of "
                f"{max_tokens} exceed the model's {engine.max_model_len}; lower graph.chunk_tokens or graph.max_tokens"
            )
    for _ in range(passes + 1):
        completions = engine.generate([dialogues[i].token_ids for i in asked], params)
        said = [dialogues[i].hear(completion) for i, completion in zip(asked, completions, strict=True)]
        for i, text, completion in zip(asked, said, completions, strict=True):
            cut = completion.finish == "length" and not text.endswith(END)
            lines, _, last = text.rpartition("\n") if cut else (text.removesuffix(END), "", "")
            answers[i].append(lines)
            torn[i] += filter(None, [last.strip()])
        asked = [i for i, text in zip(asked, said, strict=True) if text.removesuffix(END).strip()]
        for i in asked:
            dialogues[i].tell(MISSED)
        # A dialogue that has filled the context is not continued.
        asked = [i for i in asked if len(dialogues[i].token_ids) + max_tokens <= engine.max_model_len]
    for chunk, texts, rest in zip(chunks, answers, torn, strict=True):
        facts, malformed = parse(chunk, "\n".join(texts))
        yield Extraction(chunk=chunk.id, facts=facts, malformed=(*malformed, *rest))


def parse(chunk: Chunk, answer: str) -> tuple[tuple[Fact, ...], tuple[str, ...]]:
    """Return the facts of an answer, and the lines that are not records.

    A fact that quotes the chunk has the quotation's span, any other fact the span of the whole chunk.
    """
    facts: list[tuple[str, list[Mention]]] = []
    malformed = []
    for line in filter(None, map(str.strip, answer.splitlines())):
        match [part.strip() for part in line.split(FIELD)]:
            case ["fact", text] if text:
                facts.append((text, []))
            case ["entity", name, type_, description] if name and facts:
                facts[-1][1].append(Mention(name=name, type=type_, description=description, rule="llm"))
            case _:
                malformed.append(line)
    return tuple(
        Fact(text=text, entities=tuple(dict.fromkeys(entities)), source=_source(chunk, text))
        for text, entities in facts
    ), tuple(malformed)


def _source(chunk: Chunk, text: str) -> Source:
    start, end = chunk.span
    at = chunk.text.find(text)
    return Source(
        passage=chunk.passage.id,
        start=start if at < 0 else start + at,
        end=end if at < 0 else start + at + len(text),
    )
