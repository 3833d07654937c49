"""Runs the examples of the documents. Those of the docstrings run in test_docstrings.py."""

from __future__ import annotations

import doctest
import re
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import lockstep
from clients.programs import needs

ROOT = Path(__file__).parents[2]


def test_the_examples_of_the_readme_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert "{'user': 'ann', 'clicks': 3, 'price_avg': 20.833333333333332}" in shown
    assert shown.splitlines()[-1] == "True"


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
def test_the_sessions_of_the_manual_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_session(name)


def run_session(name: str) -> None:
    # One session for a page, as a reader would have it.
    text = "\n".join(blocks_of(name, "pycon"))
    session = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert session.examples
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lockstep.LockstepWarning)
        assert doctest.DocTestRunner().run(session).failed == 0


def port_that_is_free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@needs("curl")
def test_the_tutorial_serves_what_it_has_built(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "docs/tutorial.md"
    run_session(page)
    start, serve, call, end = blocks_of(page, "sh")
    addresses, answer = blocks_of(page, "text")
    assert start.endswith("python\n") and end == "kill %1\n"
    ports = {port: str(port_that_is_free()) for port in ("7431", "7432", "7433")}
    serve = serve.replace("&", "").split()
    for name, port in zip(("--http", "--postgres", "--flight"), ports.values(), strict=True):
        serve += [name, f"127.0.0.1:{port}"]
    for port, free in ports.items():
        addresses, call = addresses.replace(port, free), call.replace(port, free)
    assert serve[0] == "lockstep"
    command = [sys.executable, "-m", *serve]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            shown = [server.stdout.readline() for _ in addresses.splitlines()]
            assert "".join(shown) == addresses
            done = subprocess.run(["bash", "-c", call], capture_output=True, text=True, timeout=60)
            assert done.stdout.strip() == answer.strip(), done.stderr
        finally:
            server.terminate()
    assert server.returncode == 0


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
