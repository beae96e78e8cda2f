"""Sphinx configuration: MyST pages, docstrings, and what extension.py makes of the sources."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "tensorc"
author = "the tensorc authors"
copyright = f"2026, {author}"
release = version = installed_version("tensorc")

extensions = ["extension", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
default_role = "code"  # single backquotes in docstrings mark code
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Nests are almost Python: what the lexer does not know is shown as it is.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"tensorc {release}"
