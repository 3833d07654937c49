"""Tests of the line that says how far a long call is."""

import io
import time

import pyarrow as pa
import pytest

import lockstep
from lockstep import _progress


class Terminal(io.StringIO):
    """A standard error that somebody looks at."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal on which every call is shown at once."""
    found = Terminal()
    monkeypatch.setattr(_progress, "_stream", lambda: found)
    monkeypatch.setattr(_progress, "SHOWN_S", 0.0)
    monkeypatch.setattr(_progress, "_PERIOD_S", 0.001)
    monkeypatch.delenv("LOCKSTEP_PROGRESS", raising=False)
    return found


def wait_for(terminal, text):
    """Waits until a text is shown; ten seconds at most."""
    end = time.monotonic() + 10
    while text not in terminal.getvalue():
        assert time.monotonic() < end, f"{text!r} is not in {terminal.getvalue()!r}"
        time.sleep(0.001)


def test_a_call_is_shown_with_its_fraction_and_removed_at_its_end(terminal):
    with _progress.watched("verify spending") as work:
        wait_for(terminal, "verify spending: 0 s")
        work.report(0.25)
        wait_for(terminal, "verify spending:  25% ██░░░░░░░░")
        work.report(1)
        wait_for(terminal, "100% " + "█" * 10)
    assert terminal.getvalue().endswith("\r\x1b[K")
    shown = terminal.getvalue()
    time.sleep(0.02)
    assert terminal.getvalue() == shown


def test_the_outer_one_of_two_calls_is_shown(terminal):
    with _progress.watched("outer"):
        with _progress.watched("inner"):
            wait_for(terminal, "outer: 0 s")
        assert "inner" not in terminal.getvalue()


def test_a_short_call_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(_progress, "SHOWN_S", 1_000.0)
    with _progress.watched("short"):
        time.sleep(0.02)
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_nobody_looks(terminal, monkeypatch):
    with monkeypatch.context() as off:
        off.setenv("LOCKSTEP_PROGRESS", "off")
        with _progress.watched("silent") as work:
            assert work is None
    monkeypatch.setattr(_progress, "_stream", io.StringIO)
    with _progress.watched("piped") as work:
        assert work is None
    monkeypatch.setattr(_progress, "_stream", lambda: None)
    with _progress.watched("without") as work:
        assert work is None
    assert _progress.reporter(None) is None
    assert terminal.getvalue() == ""


def test_a_program_that_runs_notebooks_is_none():
    pytest.importorskip("ipykernel")
    assert not _progress._is_notebook()


def test_a_notebook_shows_the_line_in_an_output(terminal, monkeypatch):
    display = pytest.importorskip("IPython.display")
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data["text/plain"])

    def begin(data, raw, display_id):
        shown.append(data["text/plain"])
        return Handle()

    monkeypatch.setattr(display, "display", begin)
    monkeypatch.setattr(_progress, "_is_notebook", lambda: True)
    with _progress.watched("verify spending") as work:
        end = time.monotonic() + 10
        while not shown:
            assert time.monotonic() < end
            time.sleep(0.001)
        work.report(1)
    assert shown[0] == "verify spending: 0 s"
    assert shown[-1].startswith("verify spending: 100% ")
    assert terminal.getvalue() == ""


def test_a_password_is_not_shown():
    work = _progress.Work("CREATE USER ann OPTIONS(password='hush')")
    assert work.what == "CREATE USER ann"
    assert len(_progress.Work("DEPLOY " + "x" * 500).what) == 24


def test_a_line_fits_a_terminal():
    work = _progress.Work("DEPLOY " + "x" * 500)
    work.step = "building an index"
    work.report(0.02)
    assert len(work.line(work.began_s + 1_000_000)) == 79


def test_the_time_that_is_left():
    work = _progress.Work("query")
    work.report(0.25)
    assert work.line(work.began_s + 3).endswith(" 3 s, about 9 s left")
    work.report(7)
    assert work.line(work.began_s + 3).endswith(" 3 s")


@pytest.fixture
def works(terminal, monkeypatch):
    """The calls that were watched."""
    found = []
    begin = _progress._watcher.begin
    monkeypatch.setattr(_progress._watcher, "begin", lambda work: (found.append(work), begin(work)))
    return found


def test_the_calls_that_may_take_long_are_watched(works):
    db = lockstep.connect()
    db.execute("CREATE TABLE t (k STRING, v INT, ts TIMESTAMP)")
    rows = [{"k": "a", "v": v, "ts": v} for v in range(2_000)]
    db.append("t", rows)
    db.append("t", db.sql("SELECT * FROM t").arrow())
    db.execute(
        "DEPLOY total AS SELECT sum(v) OVER w AS s FROM t WINDOW w AS"
        " (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
    )
    assert db.verify("total")
    found = [work.what for work in works]
    assert found == [
        "CREATE TABLE t",
        "append t",
        "query",
        "append t",
        "DEPLOY total AS",
        "verify total",
    ]
    assert works[-1].fraction > 0.9
    own = []
    db.verify("total", progress=own.append)
    assert own and len(works) == len(found)


def test_the_engine_says_what_it_does(works, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("k,v,ts\n" + "".join(f"k{v % 9},{v},{v}\n" for v in range(5_000)))
    db = lockstep.connect()
    db.execute("CREATE TABLE t (k STRING, v INT, ts TIMESTAMP)")
    db.execute(f"LOAD DATA INFILE '{path}' INTO TABLE t")
    db.execute("CREATE INDEX by_key ON t (k) OPTIONS (ts=ts)")
    window = (
        "SELECT sum(v) OVER w AS s FROM t WINDOW w AS"
        " (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
    )
    assert db.sql(window).run().has_run
    db.append("t", pa.table({"k": ["a"] * 5_000, "v": [1] * 5_000, "ts": list(range(5_000))}))
    db.execute("ALTER TABLE t ADD COLUMN w INT")
    steps = [(work.what, work.step) for work in works if work.step]
    assert steps == [
        ("LOAD DATA INFILE", "reading files"),
        ("CREATE INDEX by_key", "building an index"),
        ("query", "computing windows"),
        ("append t", "converting rows"),
        ("ALTER TABLE t", "copying rows"),
    ]
    assert all(0 <= work.fraction <= 1 for work in works if work.step)


def test_what_a_callback_raises_stops_the_work():
    db = lockstep.connect()
    db.execute("CREATE TABLE t (k STRING, v INT, ts TIMESTAMP)")
    db.append("t", pa.table({"k": ["a"] * 50_000, "v": [1] * 50_000, "ts": list(range(50_000))}))
    window = (
        "SELECT sum(v) OVER w AS s FROM t WINDOW w AS"
        " (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
    )
    db.execute(f"DEPLOY total AS {window}")
    called = []

    def callback(fraction):
        called.append(fraction)
        raise LookupError("enough")

    for call in (db.sql(window).run, lambda progress: db.verify("total", progress=progress)):
        called.clear()
        with pytest.raises(LookupError, match="enough"):
            call(progress=callback)
        assert len(called) == 1
    assert db.verify("total", sample=100)


def test_an_error_ends_the_line(works):
    with pytest.raises(lockstep.Error):
        lockstep.connect().execute("SELECT missing FROM nowhere")
    assert len(works) == 1
    assert _progress._watcher._works == []
