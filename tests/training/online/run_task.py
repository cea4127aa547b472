"""One process of online runs on the lucky words, one after the other, for torchrun: ``run_task.py MODEL BASE JOBS``.

``JOBS`` is a JSON object: by the run's name, what differs from ``lucky.SPEC``, and the server's URL if there is one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from platform_sdk.config.sampling import EngineSpec
from platform_sdk.training.online.loop import train_online
from tests.training.online import lucky
from tests.training.online.stepwise import StepProgress

if __name__ == "__main__":
    model, base, jobs = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    for name, (changes, url) in jobs.items():
        folder = base / name / "online"
        engine = EngineSpec(engine="openai" if url else "transformers", url=url, live=6)
        spec = lucky.SPEC.model_validate(lucky.SPEC.model_dump() | changes)
        task = lucky.task(credit=StepProgress() if name == "stepwise" else None)
        train_online(spec, task, model, folder / "model", engine=engine, seed=5, folder=folder)
