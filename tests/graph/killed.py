"""``python -m tests.graph.killed COMMAND RUN FILE N``: a build or an ``add`` that is killed at its N-th event.

Events are files of the run that are opened, renamed, removed or made, and stages of the merge. With N = 0 the process
is not killed, and prints how many there were.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from platform_sdk.config.graph import GraphSpec
from platform_sdk.graph.build import add, build

SPEC = GraphSpec(chunk_tokens=16, overlap_tokens=8, shards=2)
FILES = {"open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "shutil.rmtree"}


def main(command: str, run: Path, file: Path, kill_at: int) -> None:
    events = 0

    def count() -> None:
        nonlocal events
        events += 1
        if events == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FILES and str(arguments[0]).startswith(str(run)):
            count()

    class Stages(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            count()

    merging = logging.getLogger("platform_sdk.graph.merge")
    merging.addHandler(Stages())
    merging.setLevel(logging.INFO)
    sys.addaudithook(audit)
    if command == "build":
        build(run, SPEC)
    else:
        add(run, SPEC, file)
    print(events)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
