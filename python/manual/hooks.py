"""Hooks of mkdocs: the list of decisions, what is searched, and links that leave the manual."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path


def on_config(config):
    """Adds the decisions, in the order of their numbers."""
    folder = Path(config.docs_dir) / "adr"
    pages = ["adr/README.md", *(f"adr/{path.name}" for path in sorted(folder.glob("[0-9]*.md")))]
    config.nav.append({"Decisions": pages})
    # In the place of a script that would be fetched from another host, for the search in files.
    config.extra["polyfills"] = ["javascripts/search_from_files.js"]
    return config


def on_page_markdown(markdown, *, page, config, files):
    """Excludes decisions from the search, and writes a link to a file outside docs/ as its path."""
    if page.file.src_uri.startswith("adr/"):
        # A reader who searches for a term looks for its use, not for the reasons of its design.
        page.meta["search"] = {"exclude": True}
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    root = Path(config.docs_dir).parent

    def replaced(match):
        target = posixpath.normpath(posixpath.join(folder, match[2].partition("#")[0]))
        if target == "docs" or target.startswith("docs/"):
            return match[0]
        # A file that is missing stays a link, which the strict build refuses.
        return f"{match[1]} (`{target}`)" if (root / target).exists() else match[0]

    return re.sub(r"\[([^\]\n]+)\]\(((?:\.\./)[^)\s]*)\)", replaced, markdown)
