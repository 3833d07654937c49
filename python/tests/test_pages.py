"""What a reader sees: pages of the manual, and a result in a notebook, in a browser."""

from __future__ import annotations

import functools
import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

import lockstep
from clients.browser import Browser, browser, program

ROOT = Path(__file__).parents[2]

PAGES = {
    "index.html": "Lockstep",
    "tutorial.html": "Tutorial",
    "reference/functions.html": "Functions",
    "reference/python.html": "Python API",
    "guide/examples.html": "Examples",
}
"""The title of each page that is opened."""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if program() is None:
        pytest.skip("there is no browser: install chromium, or name one in LOCKSTEP_BROWSER")
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built manual."""
    site = tmp_path_factory.mktemp("manual") / "site"
    arguments = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)]
    subprocess.run(arguments, cwd=ROOT, check=True, capture_output=True)
    return site


def colours(png: bytes) -> int:
    """Returns the number of colours of a picture."""
    pixels = image.imread(io.BytesIO(png), format="png")[..., :3]
    assert pixels.shape[0] > 500 and pixels.shape[1] > 1000
    return len(np.unique((pixels * 255).astype(np.uint8).reshape(-1, 3), axis=0))


def is_shown(png: bytes) -> bool:
    """Returns whether there is text on a picture: edges of letters have many colours."""
    return colours(png) > 20


@pytest.mark.parametrize(("page", "title"), PAGES.items())
def test_a_page_of_the_manual_opens_without_an_error(window, manual, page, title):
    window.open((manual / page).as_uri())
    assert title in window.evaluate("document.title")
    assert title in window.evaluate("document.querySelector('h1').innerText")
    assert window.evaluate("document.fonts.status") == "loaded"
    assert is_shown(window.screenshot())
    assert window.errors() == []


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, manual: Path) -> Iterator[str]:
    """The address of the manual, opened as files and from a server."""
    if request.param == "file":
        yield manual.as_uri()
        return
    handler = functools.partial(QuietHandler, directory=str(manual))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_the_search_of_the_manual_finds_a_page(window, address):
    window.open(f"{address}/index.html")
    # As a reader types: the index is loaded when the field gets the focus, and searched when a
    # key is released.
    window.evaluate("document.querySelector('.md-search__input').focus()")
    for letter in "LAST JOIN":
        window.call("Input.dispatchKeyEvent", type="keyDown", text=letter)
        window.call("Input.dispatchKeyEvent", type="keyUp", key=letter)
    links = "[...document.querySelectorAll('.md-search-result__link')].map(a => a.href)"
    found = window.wait_for(f"({links}).length > 0 && {links}")
    joins = [link for link in found if "guide/joins.html" in link]
    assert joins, found
    assert is_shown(window.screenshot())
    assert window.errors() == []
    window.open(joins[0])
    assert "Joins" in window.evaluate("document.querySelector('h1').innerText")
    assert window.errors() == []


def test_a_session_is_copied_without_prompts_and_output(window, manual):
    window.open((manual / "tutorial.html").as_uri())
    copied = "[...document.querySelectorAll('.language-pycon')].map(b => b.dataset.copy)"
    blocks = window.evaluate(copied)
    assert blocks[0].startswith("import lockstep\nwith open(")
    assert ">>>" not in "".join(blocks) and "... " not in "".join(blocks)
    # The output of the last statement is left out, and an empty line ends a block.
    assert blocks[3].rstrip().endswith("print(row)") and blocks[3].endswith("\n")
    compile("\n".join(blocks), "tutorial", "exec")
    assert window.errors() == []


def test_a_page_with_an_error_is_noticed(window, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<script>nothing.here()</script><script>console.error('said')</script>")
    window.open(page.as_uri())
    assert any("nothing is not defined" in error for error in window.errors())
    assert any("said" in error for error in window.errors())
    page.write_text("<img src='missing.png'>")
    window.open(page.as_uri())
    assert any("missing.png" in error for error in window.errors())
    page.write_text("")
    window.open(page.as_uri())
    assert not is_shown(window.screenshot())


@pytest.fixture
def result() -> lockstep.Relation:
    """30 rows with what HTML must not take as its own, and a NULL."""
    db = lockstep.connect()
    rows = [{"k<b>": f'<i>&"{number}', "text": "  two\n  lines", "v": None} for number in range(29)]
    db.execute("CREATE TABLE t (`k<b>` STRING, text STRING, v DOUBLE)")
    db.append("t", [*rows, {"k<b>": "<script>document.title = 'changed'</script>", "v": 1.5}])
    return db.sql("SELECT * FROM t ORDER BY v, `k<b>`")


def test_a_result_in_a_notebook_is_shown(window, result, tmp_path):
    page = tmp_path / "notebook.html"
    head = "<!doctype html><meta charset='utf-8'><title>Notebook</title>"
    page.write_text(head + result._repr_html_())
    window.open(page.as_uri())
    assert window.errors() == []
    assert window.evaluate("document.title") == "Notebook"
    assert window.evaluate("document.querySelectorAll('tbody tr').length") == 20
    assert window.evaluate("document.querySelectorAll('script, tbody b').length") == 0
    assert window.evaluate("document.querySelector('th').innerText") == "k<b>"
    assert "20 of 30 rows" in window.evaluate("document.body.innerText")
    assert is_shown(window.screenshot())


class Elements(HTMLParser):
    """Checks that elements are closed in the order in which they were opened, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.text = ""

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.open.append(tag)
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.text += data


def elements(html: str) -> Elements:
    found = Elements()
    found.feed(html)
    found.close()
    assert found.open == [], "an element stays open"
    return found


def test_the_html_of_a_result_is_well_formed(result):
    found = elements(result._repr_html_())
    # A row of names, one of types, and the first 20.
    assert found.counts["tr"] == 22
    assert found.counts["th"] == 3
    assert found.counts["td"] == 3 * 21
    # Of the values only; what the data holds is text.
    assert "script" not in found.counts and "b" not in found.counts
    assert "<script>document.title = 'changed'</script>" in found.text
    assert "k<b>" in found.text
    assert "20 of 30 rows" in found.text


@pytest.mark.parametrize("sql", ["CREATE TABLE `<b>` (a INT)", "SHOW TABLES", "SELECT 1 AS `<b>`"])
def test_the_html_of_other_statements_is_well_formed(sql):
    found = elements(lockstep.connect().execute(sql)._repr_html_())
    assert "b" not in found.counts
