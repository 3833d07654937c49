"""A new database on the tests' server, for interfaces that open their own connections."""

from __future__ import annotations

import itertools

import pytest

import lockstep

_numbers = itertools.count()


def new_database(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Makes a database on the server; returns the server's URL and the name of the database."""
    try:
        server = request.getfixturevalue("server")
    except pytest.FixtureLookupError:
        pytest.skip("the tests have no server")
    url = f"lockstep://{server.flight}"
    name = f"interface_{next(_numbers)}"
    with lockstep.connect(url) as db:
        db.execute(f"CREATE DATABASE {name}")
    return url, name
