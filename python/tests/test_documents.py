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


def prose() -> list[tuple[str, str]]:
    """Returns the lines of the README and of the manual that people wrote, with their places."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    generated = {"reference", "adr"}
    lines = []
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        if generated & set(page.parts) or name in {
            "docs/compatibility.md",
            "docs/benchmarks/results.md",
        }:
            continue
        for number, line in enumerate(page.read_text().splitlines(), 1):
            lines.append((f"{name}:{number}", line))
    assert len(lines) > 1_000
    return lines


def test_every_code_that_the_documents_name_exists():
    reference = ROOT / "docs" / "reference"
    codes = set(re.findall(r"^\| `(\w{5})` \|", (reference / "errors.md").read_text(), re.M))
    lints = set(re.findall(r"\((01L\d\d)\)", (reference / "lints.md").read_text()))
    assert codes
    assert lints
    assert not codes & lints
    classes = {code[:2] for code in codes}
    written = re.compile(rf"(?<![-\w.'])((?:{'|'.join(sorted(classes))})[0-9A-Z]{{3}})\b(?![:'])")
    numbers = re.compile(r"\d+(?:MB|GB|ms)|000\d[1-9]")
    unknown = [
        f"{place}: {code}"
        for place, line in prose()
        for code in written.findall(line)
        if code not in codes | lints and not numbers.fullmatch(code)
    ]
    assert not unknown, unknown


def test_every_setting_that_the_documents_name_exists():
    done = subprocess.run(
        [sys.executable, "-m", "lockstep", "serve", "--print-config"],
        capture_output=True,
        text=True,
        check=True,
    )
    settings, section = set(), ""
    for line in done.stdout.splitlines():
        if heading := re.match(r"\[(\w+)\]", line):
            section = heading[1]
        elif setting := re.match(r"(?:# ?)?(\w+) =", line):
            settings.add(f"{section}.{setting[1]}")
    sections = "|".join({setting.split(".")[0] for setting in settings})
    db = lockstep.connect()
    variables = set()
    for statement in ["SHOW VARIABLES", "SHOW GLOBAL VARIABLES"]:
        variables |= {row[0] for row in db.execute(statement).fetchall()}
    assert len(settings) > 30
    assert len(variables) > 20
    unknown = []
    for place, line in prose():
        for name in re.findall(rf"`((?:{sections})\.[a-z_]+)[`= ]", line):
            unknown += [f"{place}: {name}"] if name not in settings else []
        for name in re.findall(r"\bSET (?:GLOBAL |SESSION )?([a-z_]+) ?=", line):
            unknown += [f"{place}: {name}"] if name not in variables else []
    assert not unknown, unknown


def test_every_option_that_the_documents_name_exists():
    statements = (ROOT / "docs" / "reference" / "statements.md").read_text()
    options = {name.lower() for name in re.findall(r"^\| `(\w+)`", statements, re.M)}
    assert len(options) > 20
    unknown = [
        f"{place}: {name}"
        for place, line in prose()
        for listed in re.findall(r"OPTIONS ?\(([^)…]*)", line)
        for name in re.findall(r"(\w+) ?=", listed)
        if name.lower() not in options
    ]
    assert not unknown, unknown
