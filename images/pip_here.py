"""Print the flags with which an image build finds packages like pip on this machine.

pip's settings may refer to files (a certificate, a folder of wheels, an index), which a build sees only if mounted.

Usage: pip_here.py FILE; pip's settings for the build are written to FILE.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pip  # noqa: F401  (without pip it would have no settings)

sys.path.insert(0, str(Path(__file__).parents[1]))

from install import pip_settings

# A list, e.g. of indexes, has lines in pip's settings; here each setting is one line.
settings = {name: " ".join(value.split()) for name, value in pip_settings(sys.executable).items()}
written = Path(sys.argv[1]).resolve()
written.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in sorted(settings.items()))]) + "\n")
named = {Path(word.removeprefix("file://")) for value in settings.values() for word in value.split()}
# The pages of an index link to files in the parent folder.
shown = {path.parent if path.name == "simple" else path for path in named if path.is_absolute() and path.exists()}
print(f"--volume {written}:/etc/pip.conf:ro", *(f"--volume {path}:{path}:ro" for path in sorted(shown)))
