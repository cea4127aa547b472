"""Two runs that begin at the same moment beside each other, where there is no store yet."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import sys
from pathlib import Path
from platform_sdk.tracking import finish_run, start_run
run_dir = Path(sys.argv[1])
start_run(run_dir, {"pipeline": "p", "name": run_dir.name, "parameters": {}}, follow=False)
print(finish_run(run_dir, "FINISHED"))
"""


def test_concurrent_runs_are_delivered_to_one_store(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path / name)], stdout=subprocess.PIPE, text=True)
        for name in ("one", "other")
    ]
    told = [process.communicate(timeout=300)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(set(told)) == 2
    assert all(told)


HALF_MADE = (
    """
import os, signal, sys
import sqlalchemy
from sqlalchemy import event
from platform_sdk.tracking.delivery import deliver

created = []

@event.listens_for(sqlalchemy.Engine, "after_cursor_execute")
def executed(connection, cursor, statement, *_):
    if "CREATE TABLE" in statement:
        created.append(statement)
        migrations = [number for number, text in enumerate(created) if "alembic_version" in text]
        if migrations and len(created) > migrations[0] + 5:
            os.kill(os.getpid(), signal.SIGKILL)

"""
    + RUN
)


@pytest.mark.slow
def test_a_store_whose_creation_was_killed_is_created_again(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", HALF_MADE, str(tmp_path / "run")], capture_output=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "run")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not list(tmp_path.glob(".mlflow.db.making*"))
