"""``python -m platform_sdk.recipes --spec FILE``: a method's step that samples, by itself or for ``torchrun``.

The file is a record of ``jobs``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from platform_sdk.recipes.jobs import JOBS
from platform_sdk.training.entry import entry


def work(spec_file: Path) -> None:
    """Do the job in the file."""
    JOBS.validate_json(spec_file.read_text()).run()


if __name__ == "__main__":
    sys.exit(entry(work, "platform_sdk.recipes"))
