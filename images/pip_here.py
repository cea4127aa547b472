"""Print the flags with which a build of the images finds packages as pip does on this machine.

pip may be told of a certificate, a folder of wheels or an index in files; a build sees none of that unless it is shown.

Usage: pip_here.py FILE, with FILE where pip's settings are written for the build.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SETTING = re.compile(r"^(?::env:|\w+)\.(?P<name>[\w-]+)='(?P<value>.*)'$")

listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
settings = {match["name"]: match["value"] for match in map(SETTING.match, listed.stdout.splitlines()) if match}
written = Path(sys.argv[1]).resolve()
written.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in sorted(settings.items()))]) + "\n")
named = {Path(word.removeprefix("file://")) for value in settings.values() for word in value.split()}
# Of an index, the files that its pages point to lie beside them.
shown = {path.parent if path.name == "simple" else path for path in named if path.is_absolute() and path.exists()}
print(f"--volume {written}:/etc/pip.conf:ro", *(f"--volume {path}:{path}:ro" for path in sorted(shown)))
