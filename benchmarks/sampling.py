"""Sampling speed: the transformers engine against ``model.generate`` on static, padded batches.

The peer is what one writes first: all dialogues of a batch take a turn together, padded on the left;
every turn reads the whole dialogue again, and lasts as long as its longest completion. The work is
that of a demo run: dialogues of three turns that begin with one of two long instructions, with
completions of 5 to 60 tokens. The third contender is the engine when it computes attention for every slot of
its cache up to the last one in use, as it did once, instead of copying the caches of the dialogues that decode where
these are few (``kv_attention.MOST_COPIED``). All take turns in one process with one thread; their greedy tokens must
be equal. Times are CPU seconds of the process, so that a busy machine distorts them little.

    OMP_NUM_THREADS=1 python benchmarks/sampling.py [--dialogues 128] [--rounds 3]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from platform_sdk.sampling import kv_attention
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.rollout import Generate, run
from platform_sdk.sampling.transformers_engine import TransformersEngine

VOCABULARY, LIVE, TURNS = 1500, 64, 3
Dialogue = tuple[list[list[int]], list[int]]
Answers = list[list[tuple[int, ...]]]


def save_model(path: Path) -> None:
    """2 M parameters, six layers, random; no token ends a sequence, so that lengths are given."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=160,
        intermediate_size=480,
        num_hidden_layers=6,
        num_attention_heads=5,
        num_key_value_heads=1,
        max_position_embeddings=768,
        tie_word_embeddings=True,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0").save_pretrained(path)


def dialogues(count: int) -> list[Dialogue]:
    """Return the observations of a dialogue before each turn, and the number of tokens sampled after each."""
    random = np.random.default_rng(0)

    def words(low: int, high: int) -> list[int]:
        return random.integers(1, VOCABULARY, size=random.integers(low, high)).tolist()

    instructions = [words(120, 121), words(80, 81)]
    made = []
    for i in range(count):
        told = [instructions[i % 2] + words(20, 120), *(words(20, 60) for _ in range(TURNS - 1))]
        made.append((told, random.integers(5, 60, size=TURNS).tolist()))
    return made


def with_engine(engine: TransformersEngine, work: list[Dialogue]) -> Answers:
    def talk(number: int, told: list[list[int]], lengths: list[int]) -> Generator[Any, Any, tuple[int, list[Any]]]:
        ids: list[int] = []
        said = []
        for message, length in zip(told, lengths, strict=True):
            ids += message
            params = SamplingParams(temperature=0, max_tokens=length)
            done = yield Generate(tuple(ids), params, f"dialogue {number}")
            ids += done.token_ids
            said.append(done.token_ids)
        return number, said

    engine._slots.clear()
    starts = [partial(talk, number, *one) for number, one in enumerate(work)]
    return [said for _, said in sorted(run(starts, engine, live=LIVE))]


def without_copies(engine: TransformersEngine, work: list[Dialogue]) -> Answers:
    with mock.patch.object(kv_attention, "MOST_COPIED", 0.0):
        return with_engine(engine, work)


def with_generate(model: Any, work: list[Dialogue]) -> Answers:
    answers: Answers = []
    for begin in range(0, len(work), LIVE):
        part = work[begin : begin + LIVE]
        states: list[list[int]] = [[] for _ in part]
        said: Answers = [[] for _ in part]
        for turn in range(TURNS):
            for state, (told, _) in zip(states, part, strict=True):
                state += told[turn]
            longest = max(map(len, states))
            ids = torch.tensor([[0] * (longest - len(state)) + state for state in states])
            mask = torch.tensor([[0] * (longest - len(state)) + [1] * len(state) for state in states])
            most = max(lengths[turn] for _, lengths in part)
            output = model.generate(
                ids, attention_mask=mask, max_new_tokens=most, do_sample=False, pad_token_id=0, eos_token_id=None
            )[:, longest:]
            for row, state, one, (_, lengths) in zip(output.tolist(), states, said, part, strict=True):
                one.append(tuple(row[: lengths[turn]]))
                state += one[-1]
        answers += said
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialogues", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    work = dialogues(arguments.dialogues)
    tokens = sum(sum(lengths) for _, lengths in work)
    with tempfile.TemporaryDirectory() as directory:
        save_model(Path(directory))
        engine = TransformersEngine(directory, live=LIVE)
        model = LlamaForCausalLM.from_pretrained(directory).eval()
        contenders: dict[str, Callable[[], Answers]] = {
            "engine": partial(with_engine, engine, work),
            "all slots": partial(without_copies, engine, work),
            "generate": partial(with_generate, model, work),
        }
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(arguments.rounds):
            answers = {}
            for name, contender in contenders.items():
                began = time.process_time()
                answers[name] = contender()
                seconds[name].append(time.process_time() - began)
            assert all(answers["engine"] == other for other in answers.values()), "the greedy tokens differ"
    print(
        f"{len(work)} dialogues of {TURNS} turns, {tokens} tokens sampled, {LIVE} live, one thread; equal greedy tokens"
    )
    for name, times in seconds.items():
        print(f"  {name:9} {median(times):7.2f} CPU s  {tokens / median(times):7.0f} tokens/s")
    for peer in ("generate", "all slots"):
        ratios = [slow / fast for slow, fast in zip(seconds[peer], seconds["engine"], strict=True)]
        rounds = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"  the engine is {median(ratios):.2f} times as fast as {peer} (rounds: {rounds})")


if __name__ == "__main__":
    main()
