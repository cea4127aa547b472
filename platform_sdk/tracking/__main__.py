"""The follower: ``python -m platform_sdk.tracking RUN_DIR OWNER_PID``, started by ``start_run``, delivers to MLflow."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.display import log_to_stderr
from platform_sdk.processes.imports import import_all
from platform_sdk.tracking.delivery import follow

POLL_SECONDS = 0.5


def main() -> int:
    log_to_stderr(logging.WARNING, "%(asctime)s %(levelname)s %(message)s")
    run_dir, owner = Path(sys.argv[1]), int(sys.argv[2])
    import_all(["mlflow"])
    try:
        follow(run_dir, lambda: os.getppid() == owner, lambda: time.sleep(POLL_SECONDS))
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
