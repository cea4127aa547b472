"""A module to launch: each of its processes does what the specification says for its rank."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.processes.entry import entry


def act(spec_file: Path) -> None:
    acts = json.loads(spec_file.read_text())
    rank = os.environ["RANK"]
    deed = acts[rank]
    temporary = spec_file.with_name(f".{rank}.pid")
    temporary.write_text(str(os.getpid()))
    temporary.replace(spec_file.with_name(f"{rank}.pid"))
    if deed == "refuse":
        raise UserError("the setting is wrong;\nmend it")
    if deed == "stumble":
        raise ZeroDivisionError("a bug")
    if deed == "vanish":
        print("the last words", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "wait":
        time.sleep(120)


if __name__ == "__main__":
    sys.exit(entry(act, "tests.processes.launched"))
