"""Print the requirements in the pyproject.toml of this folder, so that changed code does not reinstall them all.

Usage: requirements.py [EXTRA,EXTRA…]
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = [extra for extra in ",".join(sys.argv[1:]).split(",") if extra]
groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
print("\n".join(one for group in groups for one in group))
