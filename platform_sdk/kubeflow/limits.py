"""Limits of Kubernetes and Kubeflow Pipelines on names, labels and descriptions.

Sources: Kubernetes 1.34's validation of label values; the columns of Kubeflow Pipelines 2.17's MySQL tables (recorded
in ``tests/kubeflow/recorded/pipelines/error-run-description-too-long.json``) and its
``backend/src/apiserver/validation/length.go``.
"""

from __future__ import annotations

LABEL_VALUE = 63
"""Characters of a Kubernetes label's value."""
PIPELINE_NAME = 128
VERSION_NAME = 127
DESCRIPTION = 255
"""Characters of the description of a run, an experiment or a recurring run. Pipelines and versions have no limit."""
ELLIPSIS = " …"


def shortened(text: str, limit: int = DESCRIPTION) -> str:
    """Return the text in one line of at most ``limit`` characters, cut after a word with an ellipsis."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    room = limit - len(ELLIPSIS)
    cut = line[: room + 1].rpartition(" ")[0] or line[:room]
    return cut.rstrip(" ,;:") + ELLIPSIS
