"""Two runs that begin at the same moment beside each other, where there is no store yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUN = """
import sys
from pathlib import Path
from platform_sdk.tracking import finish_run, start_run
run_dir = Path(sys.argv[1])
start_run(run_dir, {"pipeline": "p", "name": run_dir.name, "parameters": {}}, follow=False)
print(finish_run(run_dir, "FINISHED"))
"""


def test_both_make_their_way_into_one_store(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path / name)], stdout=subprocess.PIPE, text=True)
        for name in ("one", "other")
    ]
    told = [process.communicate(timeout=300)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(set(told)) == 2
    assert all(told)
