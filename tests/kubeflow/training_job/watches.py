"""Watches of the test server: streams of events over chunked answers, as the real API server sends them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from http.server import BaseHTTPRequestHandler
from threading import Condition
from typing import Any

Item = dict[str, Any]


class Watches:
    """Open watches. Each sends at a ``flush`` what has changed since the one before, and a bookmark."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._flushes = self._drops = 0
        self._listed: dict[str, dict[str, str]] = {}
        self.opened = 0

    def remember(self, version: str, items: Iterable[Item]) -> None:
        """Keep the objects of a list, for a watch from its version."""
        self._listed[version] = _texts(items)

    def forget(self) -> None:
        """Give up the history, as a compaction does: watches from earlier lists end with 410."""
        self._listed.clear()

    def flush(self) -> str:
        """Let all watches send; return the version of their bookmarks."""
        with self._changed:
            self._flushes += 1
            self._changed.notify_all()
            return str(self._flushes)

    def drop(self) -> None:
        """Lose all connections."""
        with self._changed:
            self._drops += 1
            self._changed.notify_all()

    def serve(self, handler: BaseHTTPRequestHandler, select: Callable[[], Iterable[Item]], query: Item) -> None:
        """Answer a watch until its time is over or the connection is lost."""
        flushes, drops, ends = self._flushes, self._drops, time.monotonic() + float(query["timeoutSeconds"])
        known = self._listed.get(query["resourceVersion"])
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.flush()
        self.opened += 1
        if known is None:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (9)"}
            _send(handler, [("ERROR", gone)])
        while known is not None:
            with self._changed:
                woken = self._changed.wait_for(partial(self._happened, flushes, drops), ends - time.monotonic())
                if self._drops > drops:
                    handler.close_connection = True
                    return
                flushes = self._flushes
            if not woken:
                break
            now = _texts(select())
            bookmark = {"kind": "Bookmark", "metadata": {"resourceVersion": str(flushes)}}
            _send(handler, [*_events(known, now), ("BOOKMARK", bookmark)])
            known = now
        handler.wfile.write(b"0\r\n\r\n")

    def _happened(self, flushes: int, drops: int) -> bool:
        return self._flushes > flushes or self._drops > drops


def _texts(items: Iterable[Item]) -> dict[str, str]:
    return {item["metadata"]["uid"]: json.dumps(item) for item in items}


def _events(before: dict[str, str], now: dict[str, str]) -> list[tuple[str, Item]]:
    gone = [("DELETED", json.loads(before[uid])) for uid in before.keys() - now.keys()]
    changed = [(uid, "MODIFIED" if uid in before else "ADDED") for uid in now if now[uid] != before.get(uid)]
    return gone + [(type_, json.loads(now[uid])) for uid, type_ in changed]


def _send(handler: BaseHTTPRequestHandler, events: list[tuple[str, Item]]) -> None:
    data = b"".join(json.dumps({"type": type_, "object": item}).encode() + b"\n" for type_, item in events)
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    handler.wfile.flush()
