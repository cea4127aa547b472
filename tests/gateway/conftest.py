from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.gateway.templates import tokenizer

WORLD = Path(__file__).parents[2] / "platform_sdk/assets/world-base"


@pytest.fixture(scope="session")
def engine() -> Iterator[TransformersEngine]:
    torch.set_num_threads(1)
    engine = TransformersEngine(WORLD, live=8)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def gateway(engine: TransformersEngine) -> Iterator[Gateway]:
    params = SamplingParams(temperature=3.0, max_tokens=12)
    with Gateway(engine.tokenizer, engine.max_model_len, params) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def hermes() -> Iterator[Gateway]:
    with Gateway(tokenizer("qwen2_5"), 4096, SamplingParams()) as gateway:
        yield gateway


@pytest.fixture
def session(hermes: Gateway) -> Iterator[Session]:
    session = hermes.open(seed=1, name="Q#0")
    yield session
    session.close()
