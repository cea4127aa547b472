"""``python -m platform_sdk.graph --spec FILE``: one shard of an extraction, for a pod of an Indexed Job.

The file is a ``build.ExtractStep``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from platform_sdk.files import read_model
from platform_sdk.graph.build import ExtractStep, extract_shard
from platform_sdk.processes.entry import entry
from platform_sdk.processes.environment import pod_index


def extract(spec_file: Path) -> None:
    """Extract the shard in the file."""
    extract_shard(read_model(spec_file, ExtractStep), pod_index())


if __name__ == "__main__":
    sys.exit(entry(extract, "platform_sdk.graph"))
