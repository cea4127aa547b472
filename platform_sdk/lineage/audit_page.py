"""An audit as a self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.data.licences import UNKNOWN
from platform_sdk.lineage.audit import Audit
from platform_sdk.lineage.audit_text import NO_JUDGEMENT, approval_line, gold_line, outcome_of, thresholds_line
from platform_sdk.lineage.graph import Graph
from platform_sdk.lineage.text import trees
from platform_sdk.pages import render

TEMPLATE = Path(__file__).parent / "audit.html.j2"


def build_audit(audit: Audit, graph: Graph) -> str:
    """Return the page of an audit, with the model's origins as nested disclosures."""
    return render(
        TEMPLATE,
        (),
        name=audit.target,
        audit=audit,
        unknown=UNKNOWN,
        no_judgement=NO_JUDGEMENT,
        approval_line=approval_line,
        outcome_of=outcome_of,
        thresholds=thresholds_line(audit.overlap) if audit.overlap else "",
        gold=gold_line(audit.overlap).strip() if audit.overlap else "",
        trees=trees(graph, [audit.model.digest], down=False),
    )
