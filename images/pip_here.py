"""Print the flags with which an image build finds packages like pip on this machine.

pip's settings may refer to files (a certificate, a folder of wheels, an index), which a build sees only if mounted.

Usage: pip_here.py FILE; pip's settings for the build are written to FILE.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

SECTIONS = ("global", "install", ":env:")
"""Sections of pip's settings that concern an installation; later ones take precedence, as in pip."""
SETTING = re.compile(rf"^(?P<section>{'|'.join(SECTIONS)})\.(?P<name>[\w-]+)=(?P<value>'.*'|\".*\")$")

listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
found = [match for match in map(SETTING.match, listed.stdout.splitlines()) if match]
found.sort(key=lambda match: SECTIONS.index(match["section"]))
settings = {match["name"]: " ".join(ast.literal_eval(match["value"]).split()) for match in found}
written = Path(sys.argv[1]).resolve()
written.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in sorted(settings.items()))]) + "\n")
named = {Path(word.removeprefix("file://")) for value in settings.values() for word in value.split()}
# The pages of an index link to files in the parent folder.
shown = {path.parent if path.name == "simple" else path for path in named if path.is_absolute() and path.exists()}
print(f"--volume {written}:/etc/pip.conf:ro", *(f"--volume {path}:{path}:ro" for path in sorted(shown)))
