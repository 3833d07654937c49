"""Runs SQLAlchemy's own tests of dialects; see test_suite.py."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403
from sqlalchemy.testing.provision import post_configure_engine  # noqa: E402

import lockstep.sqlalchemy  # noqa: E402, F401 (registers the dialect)


@post_configure_engine.for_db("lockstep")
def make_schemas(url, engine, follower_ident):
    """Makes the databases that the tests call schemas."""
    with engine.connect() as connection:
        for name in ("test_schema", "test_schema_2"):
            connection.exec_driver_sql(f"CREATE DATABASE IF NOT EXISTS {name}")
