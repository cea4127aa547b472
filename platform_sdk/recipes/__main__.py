"""``python -m platform_sdk.recipes --spec FILE``: online training of a method's agent, by itself or for ``torchrun``.

The file is an ``online.OnlineJob``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from platform_sdk.recipes.online import OnlineJob, run_online
from platform_sdk.training.entry import entry


def train(spec_file: Path) -> None:
    """Run the job in the file."""
    run_online(OnlineJob.model_validate_json(spec_file.read_text()))


if __name__ == "__main__":
    sys.exit(entry(train, "platform_sdk.recipes"))
