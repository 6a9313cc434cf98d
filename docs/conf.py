"""Sphinx configuration of the manual. `make docs` builds it into build/docs; a warning is an error.

The source directory is the repository, so that a link between a page, a runbook and a file of the code is the same relative link on
the site and in a checkout.
"""

from __future__ import annotations

from pathlib import Path

from omniwatch import __version__

_ROOT = Path(__file__).resolve().parents[1]

project = "Omniwatch"
author = "the Omniwatch maintainers"
release = __version__
language = "en"

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "runbooks/*.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "exporter",
    "tests",
    "alerts",
    "dashboards",
    "deploy",
    "**/node_modules",
]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 4
# `sh` blocks of the manual hold a comment after a command now and then; Pygments need not understand all of a shell.
highlight_language = "none"

html_theme = "furo"
html_title = "Omniwatch"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_extra_path = ["site"]
html_static_path = ["style"]
html_css_files = ["manual.css"]
