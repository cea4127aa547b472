"""``python -m platform_sdk.methods --spec FILE``: a method's step that samples, alone or under ``torchrun``.

The file holds a ``launch.MethodStep``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from platform_sdk.files import read_object
from platform_sdk.methods.launch import STEPS
from platform_sdk.processes.entry import entry


def work(spec_file: Path) -> None:
    """Take part in the step in the file."""
    STEPS.validate_python(read_object(spec_file)).take_part()


if __name__ == "__main__":
    sys.exit(entry(work, "platform_sdk.methods"))
