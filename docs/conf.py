"""Settings of the documentation's site, which `make docs` builds from the repository's own Markdown."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import platform_sdk  # noqa: E402

project = "hopforge"
author = "The hopforge maintainers"
version = release = platform_sdk.__version__

# The source folder is the repository, so that links between its Markdown files work on the site as they do on GitHub.
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/reference/*.md",
    "pipelines/README.md",
    "pipelines/*/README.md",
    "components/*/README.md",
    "studies/*.md",
    "manifests/README.md",
    "images/README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]
exclude_patterns = [".*", "docs/_build", "runs", "tests", "benchmarks", "platform_sdk", "examples", "**/__pycache__"]

extensions = ["myst_parser", "reference"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
templates_path = ["templates"]

html_theme = "furo"
html_title = "hopforge"
html_additional_pages = {"index": "redirect.html"}
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["site.css"]
