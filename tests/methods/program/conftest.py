from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from platform_sdk.sampling.transformers_engine import TransformersEngine

ASSETS = Path(__file__).parents[3] / "platform_sdk/assets"


@pytest.fixture(scope="package")
def engine() -> Iterator[TransformersEngine]:
    torch.set_num_threads(1)
    engine = TransformersEngine(ASSETS / "world-base-react", live=8)
    yield engine
    engine.close()
