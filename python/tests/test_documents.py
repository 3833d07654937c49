"""Runs the examples of the documents. Those of the docstrings run in test_docstrings.py."""

from __future__ import annotations

import doctest
import re
import warnings
from pathlib import Path

import pytest

import lockstep

ROOT = Path(__file__).parents[2]


def test_the_examples_of_the_readme_run(capsys):
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", text, re.DOTALL)
    assert blocks
    for code, output in blocks:
        exec(compile(code, "README.md", "exec"), {})
        assert capsys.readouterr().out == output


def pages_with(language: str) -> list[str]:
    """Returns the pages of the manual that have blocks of a language."""
    pages = (ROOT / "docs").rglob("*.md")
    # What is generated from docstrings runs with them.
    found = [page for page in pages if f"```{language}\n" in page.read_text()]
    names = [page.relative_to(ROOT).as_posix() for page in found]
    return sorted(name for name in names if name != "docs/reference/python.md")


def blocks_of(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


@pytest.mark.parametrize("name", pages_with("pycon"))
def test_the_sessions_of_the_manual_run(name):
    # One session for a page, as a reader would have it.
    text = "\n".join(blocks_of(name, "pycon"))
    session = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert session.examples
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lockstep.LockstepWarning)
        assert doctest.DocTestRunner().run(session).failed == 0


def test_the_pages_with_sessions_are_found():
    found = pages_with("pycon")
    assert {"docs/tutorial.md", "docs/guide/python.md", "docs/guide/parity.md"} <= set(found)


def test_the_documents_name_files_that_exist():
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = path.read_text()
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (path.parent / link).exists(), f"{path.name} links to {link}"
        for name in re.findall(r"`((?:crates|python|docs|tests)/[^`*…]+)`", text):
            assert (ROOT / name).exists(), f"{path.name} names {name}"


def test_every_query_of_the_cookbook_deploys_with_the_values_of_batch_mode():
    db = lockstep.connect()
    verified = 0
    for block in blocks_of("docs/guide/cookbook.md", "sql"):
        if not block.startswith("SELECT"):
            db.execute(block)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lockstep.LockstepWarning)
            db.execute(f"DEPLOY recipe{verified} AS {block}")
            verification = db.verify(f"recipe{verified}")
        assert verification.ok, block
        assert verification.requests == 6, block
        verified += 1
    assert verified >= 20
