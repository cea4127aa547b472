"""torchrun as the main process of a container: its exit code, by which Kubernetes decides to restart it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from platform_sdk.processes import cgroup
from platform_sdk.processes.peak_memory import LINE, container_line
from platform_sdk.processes.torchrun import NODE_LOST, main
from tests.process_watch import wait_for

ROOT = Path(__file__).parents[2]


def started(act: str, report: Path) -> subprocess.Popen[str]:
    """A container's main process with one worker; the operator's settings come by PET_ variables, as in a job."""
    settings = {
        "PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": "localhost",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [
        sys.executable, "-m", "platform_sdk.processes.torchrun", "--max-restarts", "0", "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "localhost:0", "-m", "tests.processes.obeys", act, str(report),
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | settings, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_torchrun_ends_with_the_signal_that_stopped_it(tmp_path: Path, number: signal.Signals) -> None:
    """A PyTorchJob restarts 143 and fails for 1, torch's own exit code after SIGTERM."""
    report = tmp_path / "report"
    launcher = started("wait", report)
    wait_for(lambda: report.exists() and report.read_text() == "ready")
    launcher.send_signal(number)
    launcher.communicate(timeout=120)
    assert launcher.returncode == 128 + number
    if number is signal.SIGTERM:
        assert report.read_text() == "SIGTERM"  # the worker has had it, too


@pytest.mark.parametrize(("act", "text"), [("fail", "exitcode  : 3"), ("vanish", "Signal 9 (SIGKILL) received")])
def test_torchrun_keeps_its_exit_code_if_a_worker_fails(tmp_path: Path, act: str, text: str) -> None:
    launcher = started(act, tmp_path / "report")
    _, errors = launcher.communicate(timeout=120)
    assert launcher.returncode == 1
    assert text in errors


def test_torchrun_logs_the_peak_memory_of_a_killed_worker(tmp_path: Path) -> None:
    """The worker held 200 MiB when SIGKILL, as the kernel sends it, ended it. A container's last 100 lines are read."""
    _, errors = started("vanish", tmp_path / "report").communicate(timeout=120)
    [found] = [match for line in errors.splitlines()[-100:] if (match := LINE.search(line))]
    assert int(found[1].replace(",", "").removesuffix(" MiB")) > 200


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/\n", "memory.peak"),  # a container's view of cgroup v2
        ("0::/user.slice/run\n", "user.slice/run/memory.peak"),
        ("5:cpu:/\n4:memory:/kubepods/pod1\n0::/\n", "memory/memory.max_usage_in_bytes"),  # v1 in a container
    ],
)
def test_peak_memory_of_a_container_comes_before_the_peak_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, file: str
) -> None:
    (tmp_path / "groups").write_text(groups)
    monkeypatch.setattr(cgroup, "GROUPS_OF_PROCESS", tmp_path / "groups")
    monkeypatch.setattr(cgroup, "CGROUPS", tmp_path)
    assert container_line().endswith("(largest process)")
    (tmp_path / file).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / file).write_text("3221225472\n")
    assert container_line() == "peak memory: 3,072 MiB (container, with its file cache)"


def test_torchrun_that_loses_the_first_node_is_restarted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch.distributed.run
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError

    def loses(arguments: list[str]) -> None:
        raise RendezvousConnectionError("The connection to the C10d store has failed.")

    monkeypatch.setattr(torch.distributed.run, "main", loses)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(SystemExit) as ended:
            main([])
        assert (ended.value.code, NODE_LOST) == (138, 138)
        assert "first node was lost" in capsys.readouterr().err
        with pytest.raises(SystemExit) as ended:  # before torch has its own handlers
            signal.raise_signal(signal.SIGTERM)
        assert ended.value.code == 143
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
