"""Text of Kubernetes manifests, in one order and quoted for every reader of YAML."""

from __future__ import annotations

import io
import re
from typing import Any

Item = dict[str, Any]
_PLAIN = re.compile(r"[A-Za-z/][\w./@:+-]*[\w/]|[A-Za-z]")
_WORDS = ("y", "yes", "n", "no", "on", "off", "true", "false", "null")
MARK = "# Written by `hopforge teams render`: change the teams file and render again."


def manifest(*documents: Item) -> str:
    """Return a file of Kubernetes objects."""
    return MARK + "\n" + "---\n".join(map(dump, documents))


def dump(content: Any) -> str:
    """Return YAML with the same meaning in versions 1.1 and 1.2."""
    from ruamel.yaml import YAML
    from ruamel.yaml.representer import SafeRepresenter

    class Representer(SafeRepresenter):  # here, since ruamel is imported only where it is used
        """Quote texts that are other values in YAML 1.1, which kubectl reads: a team may be called `n`."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_text(self, text: str) -> Any:
            plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
            style = "|" if "\n" in text else None if plain else "'"
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Representer.add_representer(str, Representer.represent_text)
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 1000
    stream = io.StringIO()
    yaml.dump(content, stream)
    return stream.getvalue()
