"""Reports of a run: ``build_report`` makes a self-contained HTML page, ``build_summary`` a few lines of Markdown, and
``build_note`` the description in MLflow.

``content`` reads the run, ``charts`` draws, ``viewer`` packs the rollouts, ``page`` assembles the page.
"""

from platform_sdk.evaluation.report.note import build_note
from platform_sdk.evaluation.report.page import build_report
from platform_sdk.evaluation.report.summary import build_summary

__all__ = ["build_note", "build_report", "build_summary"]
