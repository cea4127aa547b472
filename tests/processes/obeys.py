"""A worker of torchrun: ends as its argument says, or waits and reports SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def stop(number: int, frame: object) -> None:
    Path(sys.argv[2]).write_text(signal.Signals(number).name)
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
if sys.argv[1] == "fail":
    sys.exit(3)
if sys.argv[1] == "vanish":
    held = bytearray(os.urandom(200 * 2**20))
    os.kill(os.getpid(), signal.SIGKILL)
Path(sys.argv[2]).write_text("ready")
time.sleep(120)
