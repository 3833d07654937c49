"""Runs the examples of the documents."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import lockstep

ROOT = Path(__file__).parents[2]


def test_the_examples_of_the_readme_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert "{'user': 'ann', 'clicks': 3, 'price_avg': 20.833333333333332}" in shown
    assert shown.splitlines()[-1] == "True"


def test_the_example_of_the_package_runs():
    result = doctest.testmod(lockstep)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_documents_name_files_that_exist():
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = path.read_text()
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (path.parent / link).exists(), f"{path.name} links to {link}"
        for name in re.findall(r"`((?:crates|python|docs|tests)/[^`*…]+)`", text):
            assert (ROOT / name).exists(), f"{path.name} names {name}"
