"""Seeded mutations of bytes, of JSON trees and of YAML text."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

DEEP = b"[" * 100_000 + b"]" * 100_000
DIGITS = b"9" * 10_000
_RAW = {b'"@DEEP@"': DEEP, b'"@DIGITS@"': DIGITS, b'"@BIG@"': b"1e999"}  # what json.dumps cannot write

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**64), 10**9, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"),
    float("-inf"), "", " ", "x", "0", "nan", "inf", "1e999", "yes", "\x00", "\x1b[31m", "a\nb", "\ud800", "\udfff x",
    "﻿",
    "‮", "é" * 10, "x" * 300_000, "@DEEP@", "@DIGITS@", "@BIG@", [], {}, [[]], {"": {}}, [None], ["a"] * 2000,
    {f"k{n}": n for n in range(2000)}, "${parameters.seed}", "${", "../" * 2000 + "x.yaml", "a/" * 2500, "package:none",
]  # fmt: skip

BYTES = [
    b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b"\x1b[2J", b"\r", b"\n", b"\t", b"\x85",
    b'"', b"'", b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\\ud800", b"\\u0000", b"NaN", b"-Infinity",
    b"1e999", b"null",
    b"<think>", b"</think>", b"<search>", b"</search>", b"<answer>", b"</answer>", b"<relevance>[", b"]</relevance>",
    b'Search([0], "', b"[0]", b"<select>", b"</select>", b"<sentence>",
]  # fmt: skip

YAML = [
    b"\nx: &x\n  <<: *x\n", b"\nx: &x [*x]\n", b"\nx: *none\n", b"\nx: !foo [1]\n",
    b"\nx: !!python/object:os.system 1\n",
    b"\nx: !!int abc\n", b"\nx: !!set {a, b}\n", b"\nx: !!binary aGk=\n", b"\n%YAML 9.9\n---\n", b"\n---\n", b"\n...\n",
    b"\n? [a]\n: b\n", b"\n<<: [1]\n", b"\n<<: {a: 1}\n", b"\nx: .nan\n", b"\nx: .inf\n",
    b"\nx: 0x" + b"f" * 9000 + b"\n",
    b"\nx: " + DIGITS + b"\n", b"\nx: " + DEEP[:600] + b"\n", b"\nx: " + DEEP + b"\n", b"\n" + b"- " * 2000 + b"\n",
    b"\nx: 2001-99-99\n", b"\nx: |9\n  a\n", b"\nx: >-\n\ta\n", b"\nx: @a\n", b"\nx: `a\n", b'\nx: "\\x00"\n',
    b'\nx: "\\ud800"\n', b"\npipeline: " + b"p" * 5000 + b"\n", b"\niterations: 20000\n",
    b"\n# " + b"c" * 300_000 + b"\n",
    b"\na0: &a0 [1,1]\n"
    + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10)),
    b"\nb0: &b0 {k: 1}\n"
    + b"".join(b"b%d: &b%d {<<: [%s]}\n" % (n, n, b",".join([b"*b%d" % (n - 1)] * 9)) for n in range(1, 10)),
]  # fmt: skip


def mutate_bytes(data: bytes, rng: Random, inserted: list[bytes] = BYTES) -> bytes:
    """Return ``data`` after one to four flips, cuts, deletions, insertions, repetitions and swaps."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not data:
            return rng.choice(inserted)
        a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        short = data[a : a + rng.randint(1, 40)]
        match rng.randrange(8):
            case 0:
                a = min(a, len(data) - 1)
                data = data[:a] + bytes([data[a] ^ (1 << rng.randrange(8))]) + data[a + 1 :]
            case 1:
                data = data[:a]
            case 2:
                data = data[:a] + data[a + len(short) :]
            case 3:
                data = data[:a] + data[a:b] + data[a:]
            case 4 | 5:
                data = data[:a] + rng.choice(inserted) + data[a:]
            case 6:
                data = (
                    data[:a]
                    + short * min(rng.choice((10, 1000, 30_000)), 600_000 // len(short) if short else 0)
                    + data[a:]
                )
            case 7:
                data = data[:a] + data[b:] + data[a:b]
    return data


def mutate_tree(tree: Any, rng: Random) -> Any:
    """Return a copy of a JSON tree with one to three nodes replaced, deleted, doubled, renamed, wrapped or swapped."""
    root = [copy.deepcopy(tree)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(root))
        holder, key = rng.choice(places)
        match rng.randrange(8):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(rng.choice(VALUES))
            case 3 if holder is not root:
                del holder[key]
            case 4:
                holder[key] = [holder[key], holder[key]]
            case 5 if isinstance(holder, dict):
                holder[rng.choice(("", "x", "\x1b", "k" * 9000, f"{key}s", "\ud800"))] = holder.pop(key)
            case 6:
                other, place = rng.choice(places)
                holder[key] = copy.deepcopy(other[place] if _has(other, place) else None)
            case 7:
                holder[key] = {str(key): holder[key]}
    return root[0]


def dump(tree: Any, indent: int | None = None) -> bytes:
    """Return a tree as JSON, with what ``json.dumps`` cannot write put in."""
    data = json.dumps(tree, indent=indent).encode()
    for name, raw in _RAW.items():
        data = data.replace(name, raw)
    return data


def dump_lines(trees: list[Any]) -> bytes:
    return b"".join(dump(tree) + b"\n" for tree in trees)


def _places(node: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [node]
    while waiting:
        holder = waiting.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            found.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                waiting.append(holder[key])
        if len(found) > 5000:
            break
    return found


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)
