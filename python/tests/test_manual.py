"""The manual is built, its generated pages are current, and it refuses what is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "python/manual"))


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    arguments += ["--site-dir", str(site)]
    variables = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(arguments, cwd=root, env=variables, capture_output=True, text=True)


@pytest.fixture
def copied(tmp_path) -> Path:
    """A copy of what the manual is built from."""
    for name in ("docs", "python/manual", "crates", "tests", "bench/results"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if name in ("docs", "python/manual"):
            shutil.copytree(ROOT / name, tmp_path / name)
        else:
            (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def test_the_manual_is_built_and_reads_without_a_network(tmp_path):
    result = build(ROOT, tmp_path / "site")
    assert result.returncode == 0, result.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        fetched = re.findall(
            r"<(?:script|img|link rel=\"stylesheet\")[^>]*(?:src|href)=\"(https?:[^\"]*)\"",
            page.read_text(),
        )
        assert not fetched, f"{page.name} fetches {fetched}"
    index = (tmp_path / "site/search/search_index.js").read_text()
    assert '"location":"guide/joins.html' in index
    assert '"location":"adr/' not in index


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[a](missing.md)", "missing.md"),
        ("[a](server.md#no-such-place)", "no-such-place"),
        ("[a](../no/such/file.rs)", "no/such/file.rs"),
    ],
)
def test_a_broken_link_fails(copied, text, why):
    with (copied / "docs/index.md").open("a") as page:
        page.write("\n" + text + "\n")
    result = build(copied, copied / "site")
    assert result.returncode != 0
    assert why in result.stderr


def test_a_page_outside_the_navigation_fails(copied):
    (copied / "docs/guide/forgotten.md").write_text("# Forgotten\n")
    result = build(copied, copied / "site")
    assert result.returncode != 0
    assert "guide/forgotten.md" in result.stderr


def test_the_generated_pages_are_current():
    import reference

    pages = reference.pages()
    assert len(pages) == 5
    for path, text in pages.items():
        assert (ROOT / path).read_text() == text, f"{path}: run python/manual/reference.py"
