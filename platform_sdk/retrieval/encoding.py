"""Encoding of texts in chunks, by this process or by several at once, in the order of the texts."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.processes.environment import visible_gpus
from platform_sdk.processes.guard import end_with
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.load import load_encoder

CHUNK = 512
"""Number of texts that are encoded and stored at once."""
AHEAD = 2
"""Chunks that each process encodes before the first is stored."""


@dataclass(frozen=True)
class Chunk:
    """Encoded texts: the first one's place, their vectors, and the number of texts that exceed the encoder's limit."""

    start: int
    vectors: np.ndarray
    too_long: int


def encode_chunks(spec: RetrievalSpec, encoder: Encoder, texts: Sequence[str], start: int) -> Iterator[Chunk]:
    """Yield the vectors of ``texts`` from place ``start`` on, in order.

    With ``spec.processes`` above 1, each process loads the encoder, on a separate GPU if there are several. On a CPU
    the vectors are the same bits for any number of processes (see ``encoders``).

    Raises:
        UserError: a process ended, e.g. for lack of memory, or did not load the encoder.
    """
    places = range(start, len(texts), CHUNK)
    count = min(spec.processes, len(places))
    if count < 2:
        for place in places:
            yield _encode(encoder, place, texts[place : place + CHUNK])
        return
    pools = [
        ProcessPoolExecutor(1, get_context("spawn"), _begin, (os.getpid(), number, count, spec.encoder_settings()))
        for number in range(count)
    ]
    waiting: deque[Future[Chunk]] = deque()
    try:
        for number, place in enumerate(places):
            waiting.append(pools[number % count].submit(_encode_here, place, texts[place : place + CHUNK]))
            if len(waiting) == AHEAD * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            f"encoder {encoder.name}: one of {count} processes ended; its error, if any, is in the log above. If "
            "memory is short, lower retrieval.processes. Stored texts are not encoded again"
        ) from error
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def _encode(encoder: Encoder, place: int, texts: Sequence[str]) -> Chunk:
    return Chunk(place, encoder.encode(texts, kind="passage"), encoder.too_long(texts))


_encoders: list[Encoder] = []
"""The encoder of a process that encodes for another one."""


def _begin(parent: int, number: int, count: int, settings: Mapping[str, Any]) -> None:
    """Load the encoder of process ``number`` of ``count``."""
    end_with(parent)
    placed = dict(settings)
    if settings["device"] in ("auto", "cuda") and (gpus := visible_gpus()):
        placed["device"] = f"cuda:{number % len(gpus)}"
    elif settings["threads"] is None:
        # The affinity lacks cores that are given to other processes; macOS has none.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        placed["threads"] = max(1, cores // count)
    _encoders.append(load_encoder(**placed))


def _encode_here(place: int, texts: Sequence[str]) -> Chunk:
    return _encode(_encoders[0], place, texts)
