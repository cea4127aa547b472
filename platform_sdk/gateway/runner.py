"""Client of the runner in a program's own image (``images/runner/runner.c``, which describes the protocol)."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from platform_sdk.gateway.events import ProgramOutcome

_HEAD = struct.Struct(">cI")
_POLL_SECONDS = 0.5
_CONNECT_SECONDS = 30.0


@dataclass(frozen=True)
class RunnerEnd:
    """End of a command: ``stopped`` is the reason if it was ended early, and ``status`` is then None."""

    stopped: ProgramOutcome | None
    status: int | None
    stdout: bytes
    stderr: bytes


def run_command(
    address: str, command: Sequence[str], environment: Mapping[str, str], stdin: bytes, port: int, *, seconds: float,
    output_bytes: int, stderr_bytes: int, stop: threading.Event,
) -> RunnerEnd:  # fmt: skip
    """Run a command by the runner until it ends or reaches a bound; then nothing that it started is left.

    Args:
        port: the only TCP port that the command may connect to.
        stderr_bytes: the last bytes of standard error that are kept.
        stop: ends the command when set.

    Raises:
        OSError: the runner cannot be reached, or ended.
    """
    deadline = time.monotonic() + seconds
    host, _, number = address.rpartition(":")
    stdout, stderr = bytearray(), bytearray()

    def ended(stopped: ProgramOutcome | None, status: int | None = None) -> RunnerEnd:
        return RunnerEnd(stopped, status, bytes(stdout), bytes(stderr))

    with socket.create_connection((host, int(number)), _CONNECT_SECONDS) as connection:
        variables = [f"{name}={value}" for name, value in environment.items()]
        parts = [(b"a", word) for word in command] + [(b"e", each) for each in variables] + [(b"p", str(port))]
        frames = [(kind, text.encode()) for kind, text in parts] + [(b"i", stdin), (b"x", b"")]
        try:
            connection.sendall(b"".join(_HEAD.pack(kind, len(content)) + content for kind, content in frames))
            for kind, content in _frames(connection, deadline, stop):
                if kind == b"o":
                    stdout += content
                elif kind == b"r":
                    stderr += content
                    del stderr[:-stderr_bytes]
                else:
                    return ended(None, int(content))
                if len(stdout) > output_bytes:
                    return ended("limit")
        except (BrokenPipeError, ConnectionResetError) as error:
            message = "the runner of the program's image ended; see the log of the container program"
            raise ConnectionError(message) from error
    return ended("timeout")


def _frames(connection: socket.socket, deadline: float, stop: threading.Event) -> Iterator[tuple[bytes, bytes]]:
    """Yield the runner's frames until the deadline.

    Raises:
        ConnectionResetError: the runner closed the connection.
    """
    received = bytearray()
    while not stop.is_set() and (left := deadline - time.monotonic()) > 0:
        connection.settimeout(min(left, _POLL_SECONDS))
        try:
            chunk = connection.recv(65536)
        except TimeoutError:
            continue
        if not chunk:
            raise ConnectionResetError("closed without an end of the command")
        received += chunk
        while len(received) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(received)
            if len(received) < _HEAD.size + length:
                break
            yield kind, bytes(received[_HEAD.size : _HEAD.size + length])
            del received[: _HEAD.size + length]
