"""The log service as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from platform_sdk.tracking.log.chain import FILE_NAME
from tests.authority import Authority, make_key
from tests.process_watch import free_port

TEAMS = ("blue", "red")


def statement(number: int, **fields: Any) -> dict[str, Any]:
    digest = f"{number:064x}"
    return {"event": "run ended", "run": f"/runs/{number}", "start": digest, "head": f"7:{digest}", **fields}


class Service:
    """The service as a process on one port and one log."""

    def __init__(self, folder: Path, *options: str, authority: Authority | None = None, **environment: str) -> None:
        self.folder, self.options, self.environment = folder, options, environment
        self._tls = httpx.create_ssl_context()
        if authority is not None:
            certificate = authority.issue("log")
            self.options += ("--tls-cert", str(certificate.certificate), "--tls-key", str(certificate.key))
            self._tls.load_verify_locations(authority.certificate)
        self.log, self.key = folder / FILE_NAME, folder / "key.pem"
        (folder / "tokens").mkdir()
        for team in TEAMS:
            (folder / "tokens" / team).write_text(f"token-{team}")
        make_key(self.key)
        self.port = free_port()
        self.url = f"{'https' if authority else 'http'}://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "platform_sdk.cli", "serve", "log", "--file", str(self.log),
             "--port", str(self.port), "--tokens", str(self.folder / "tokens"), "--key", str(self.key), *self.options],
            stdout=subprocess.DEVNULL, stderr=(self.folder / "output").open("ab"),
            env={**os.environ, **self.environment},
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                httpx.get(f"{self.url}/healthz", timeout=1, verify=self._tls).raise_for_status()
                return
            except httpx.HTTPError:
                assert self.process.poll() is None, (self.folder / "output").read_text()
                time.sleep(0.05)
        raise AssertionError((self.folder / "output").read_text())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def post(self, content: Any, team: str = "blue", **settings: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer token-{team}"}
        return httpx.post(
            f"{self.url}/v1/entries", json=content, headers=headers, timeout=20, verify=self._tls, **settings
        )

    def get(self, path: str, team: str = "blue") -> httpx.Response:
        headers = {"Authorization": f"Bearer token-{team}"}
        return httpx.get(self.url + path, headers=headers, timeout=20, verify=self._tls)
