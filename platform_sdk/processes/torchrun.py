"""``torchrun`` as the main process of a container: ``python -m platform_sdk.processes.torchrun ARGUMENTS``.

torch's own main ends with exit code 1 when a signal stops it or another node is lost, as it does when a worker fails.
Kubernetes' controllers then cannot distinguish a drained node from a fault in the program: a PyTorchJob with
``restartPolicy: ExitCode`` restarts a pod only for an exit code of 128 or more.

If a worker fails, the container's peak memory is logged too, since the worker may have been killed for lack of it.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from platform_sdk.processes.peak_memory import container_line

SIGNALS = (signal.SIGTERM, signal.SIGINT)
NODE_LOST = 128 + signal.SIGUSR1
"""Exit code after the connection to the first node, which holds the rendezvous, is lost.

The training-operator reserves this code for restarts requested by the program.
"""


def main(arguments: list[str]) -> None:
    """Run torchrun with these arguments.

    On SIGTERM or SIGINT, torch's agent sends the signal to its workers and waits 30 seconds for them before it kills
    them; then this process ends.

    Raises:
        SystemExit: with 128 + the signal's number after a signal, with ``NODE_LOST``, or with torchrun's exit code.
    """
    # The first process of a container ignores signals without a handler. torch sets its own when the workers start.
    for number in SIGNALS:
        signal.signal(number, _stop)

    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError
    from torch.distributed.run import main as torchrun

    try:
        torchrun(arguments)
    except SignalException as stopped:
        sys.exit(128 + stopped.sigval)
    except ChildFailedError:
        print(container_line(), file=sys.stderr)
        raise
    except RendezvousConnectionError as error:
        print(f"error: the connection to the job's first node was lost: {error}", file=sys.stderr)
        sys.exit(NODE_LOST)


def _stop(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main(sys.argv[1:])
