"""Stands in for a Python with vLLM: takes the server's command line, answers when asked for its health, has a child.

What it does is told by the variable STAND_IN: ``serve``, ``fail`` (end at once), ``die`` (end at the first question for
its health). Only processes are tested with it; the real vLLM is in tests/integration.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def main() -> None:
    words = sys.argv[1:]
    assert words[:2] == ["-m", "platform_sdk.sampling.serve"]
    served, port = Path(words[words.index("--spec") + 1]), int(words[words.index("--port") + 1])
    print("loading", served, "on GPUs", repr(os.environ["CUDA_VISIBLE_DEVICES"]), flush=True)
    deed = os.environ["STAND_IN"]
    if deed == "fail":
        print("ERROR [core.py:1] ValueError: no such architecture", file=sys.stderr)
        print(*["what another process says of it"] * 20, sep="\n", file=sys.stderr)
        print("RuntimeError: see above", file=sys.stderr)
        sys.exit(3)
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    temporary = served.with_name(".pids")
    temporary.write_text(f"{os.getpid()} {child.pid}")
    temporary.replace(served.with_name("pids"))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()
            if deed == "die":
                print("EngineDeadError", flush=True)
                threading.Timer(0.2, os._exit, [9]).start()

    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
