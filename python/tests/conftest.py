"""Shared fixtures: an empty database, in the process or on a server, and one with purchases."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import lockstep
from clients.matrix import Matrix
from clients.served import ServedDirectory, serve

SPENT = """
    SELECT user, count(price) OVER w AS purchases, sum(price) OVER w AS spent
    FROM purchases
    WINDOW w AS (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 1m PRECEDING AND CURRENT ROW)
"""

EMBEDDED_ONLY = {
    "test_progress_reaches_the_end": "a server does not say how far a query is",
    "test_a_relation_belongs_to_the_tables_of_its_time": "a server binds a query again to run it",
    "test_writes_stop_at_a_share_of_the_memory": "SET GLOBAL is for all tests of the server",
}
"""Tests that only an embedded connection can pass, with the reason."""


@dataclass(frozen=True)
class Server:
    """A running server and the addresses on which it listens."""

    http: str
    flight: str


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Has the temporary folders that examples make go with those of the tests."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="module")
def spark() -> Iterator:
    """A session of Spark, for tests that import `on_spark`."""
    from on_spark import session

    with session() as made:
        yield made


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves a database in memory to everybody on this machine, who may name files of the tests."""
    arguments = [
        ":memory:",
        "--http",
        "127.0.0.1:0",
        "--flight",
        "127.0.0.1:0",
        "--postgres",
        "off",
    ]
    arguments += ["--set", "server.authentication=none"]
    arguments += ["--set", f"server.file_folders={tmp_path_factory.getbasetemp()}"]
    child = subprocess.Popen(
        [sys.executable, "-m", "lockstep", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout is not None
    lines = [child.stdout.readline().split()[2] for _ in range(2)]
    yield Server(http=lines[0], flight=lines[1])
    child.terminate()
    assert child.wait(60) in (0, 3)


_numbers = itertools.count()


def connect_to(server: Server) -> lockstep.Connection:
    """Connects to a server, in a database of its own."""
    name = f"test_{next(_numbers)}"
    db = lockstep.connect(f"lockstep://{server.flight}")
    db.execute(f"CREATE DATABASE {name}")
    db.execute(f"USE {name}")
    return db


@pytest.fixture(params=["embedded", "remote"])
def db(request: pytest.FixtureRequest) -> Iterator[lockstep.Connection]:
    """An empty database: in the process, or on a server."""
    if request.param == "embedded":
        yield lockstep.connect()
        return
    reason = EMBEDDED_ONLY.get(request.node.originalname)
    if reason is not None:
        pytest.skip(reason)
    db = connect_to(request.getfixturevalue("server"))
    yield db
    db.close()


@pytest.fixture
def purchases(db: lockstep.Connection) -> lockstep.Connection:
    db.execute("CREATE TABLE purchases (user STRING, price DOUBLE, ts TIMESTAMP)")
    db.append("purchases", [("ann", 0.1, 1_000), ("bob", 5.0, 2_000), ("ann", 0.2, 30_000)])
    return db


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    """A directory that is served to clients of all protocols."""
    with serve(tmp_path_factory.mktemp("served") / "features.lockstep") as addresses:
        yield addresses


CLIENT_MATRIX = pytest.StashKey[Matrix]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-client-matrix",
        action="store_true",
        help="write the table of clients in docs/postgres.md from the tests that pass",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "client(name, feature): what a test shows of a client")
    config.stash[CLIENT_MATRIX] = Matrix()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the test of the table of clients after the tests of clients."""
    items.sort(key=lambda item: item.path.name == "test_client_matrix.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    is_last = report.when == "call" or not report.passed
    for mark in item.iter_markers("client") if is_last and report.when != "teardown" else ():
        matrix = item.config.stash[CLIENT_MATRIX]
        matrix.note(mark.args[0], mark.args[1], has_passed=report.passed)
    return report


@pytest.fixture
def client_matrix(request: pytest.FixtureRequest) -> Matrix:
    """What has been tested of clients so far."""
    return request.config.stash[CLIENT_MATRIX]
