"""Error whose message names the problem, its place and the remedy."""

from __future__ import annotations

from typing import Literal

from platform_sdk.credentials import without_credentials

Code = Literal[
    "cluster.kind-not-managed",
    "cluster.namespace-needed",
    "cluster.no-address",
    "cluster.no-pods",
    "cluster.no-queue",
    "cluster.outside-workspace",
    "cluster.single-user",
    "compare.equal-weights",
    "compare.no-evaluation",
    "dataset.no-data-dir",
    "dataset.no-file",
    "file.not-json",
    "mlflow.not-delivered",
    "model.not-found",
    "output.no-folder",
    "package.not-installed",
    "recipe.missing-parameter",
    "recipe.unknown-parameter",
    "recipe.unknown-pipeline",
    "retrieval.certificate",
    "retrieval.index-in-use",
    "retrieval.other-encoder",
    "retrieval.unavailable",
    "run.altered",
    "run.in-use",
    "run.not-a-directory",
    "run.not-a-run",
    "run.other-recipe",
    "run.unknown",
    "serve.no-tokens",
    "serve.port-in-use",
    "serve.teams-need-tokens",
]
"""Codes of the errors that docs/troubleshooting.md explains. A code stays when its message is reworded."""


class UserError(Exception):
    """Problem that the user can fix. The command line prints the message without a traceback and exits 2.

    User names and passwords in quoted URLs are removed from the message. A code ends the message, in brackets, so that
    logs of other processes and errors that quote this one show it too.
    """

    def __init__(self, message: str, *, code: Code | None = None) -> None:
        super().__init__(without_credentials(with_code(message, code)))
        self.code = code


def with_code(message: str, code: Code | None) -> str:
    """Return a message with its code, if any."""
    return f"{message} [{code}]" if code else message
