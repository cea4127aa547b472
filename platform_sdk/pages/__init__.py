"""Self-contained HTML pages: frame, style and scripts are inlined.

``hypergraph.js`` and ``hypergraph.css`` draw hyperedges; pages that use them list them in ``scripts`` and ``styles``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

FOLDER = Path(__file__).parent


def render(template: Path, scripts: Sequence[str], styles: Sequence[str] = (), **values: Any) -> str:
    """Return a page with inlined styles and scripts, and a policy that allows no other script.

    Args:
        template: Extends ``frame.html.j2``.
        scripts: Names of files in the template's folder or in this one.
        styles: Names of style sheets likewise, after ``page.css``.
        values: Values of the template's variables.
    """
    environment = Environment(
        loader=FileSystemLoader([template.parent, FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    code = _joined(template.parent, ("theme.js", *scripts))
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    style = _joined(template.parent, ("page.css", *styles))
    page = environment.get_template(template.name)
    return page.render(script=Markup(code), script_digest=digest, style=Markup(style), **values)


def embedded_json(value: Any) -> Markup:
    """Return JSON for a ``<script>`` element, escaped so that no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _joined(folder: Path, names: Sequence[str]) -> str:
    paths = [folder / name if (folder / name).is_file() else FOLDER / name for name in names]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
