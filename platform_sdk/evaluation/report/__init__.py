"""A run as one page: ``build_report`` makes the self-contained HTML, ``build_summary`` a few lines of Markdown;
``build_note`` describes the run to readers of MLflow.

``content`` gathers, ``charts`` draws, ``viewer`` packs the rollouts, ``page`` puts the page together.
"""

from platform_sdk.evaluation.report.note import build_note
from platform_sdk.evaluation.report.page import build_report
from platform_sdk.evaluation.report.summary import build_summary

__all__ = ["build_note", "build_report", "build_summary"]
