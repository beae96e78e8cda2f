"""Sphinx configuration: MyST pages and docstrings."""

from importlib.metadata import version as installed_version

project = "tensorc"
author = "the tensorc authors"
copyright = f"2026, {author}"
release = version = installed_version("tensorc")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
default_role = "code"  # single backquotes in docstrings mark code
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = f"tensorc {release}"
