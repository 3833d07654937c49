"""ADBC and pyarrow.flight against a served directory: what any program with Arrow does first."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")


def message(number: int, value: bytes) -> bytes:
    """Returns a field of a message of Protocol Buffers that has bytes."""
    length, size = [], len(value)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + value


def statement(sql: str) -> bytes:
    """Returns the command of Flight SQL that runs a query."""
    name = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return message(1, name) + message(2, message(1, sql.encode()))


@pytest.mark.client("pyarrow.flight", "queries of Flight SQL")
def test_pyarrow_runs_a_query(served):
    flight = pytest.importorskip("pyarrow.flight")
    client = flight.FlightClient(f"grpc://{served.flight}")
    command = statement("SELECT number FROM numbers WHERE number > 7 ORDER BY number")
    info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
    assert info.schema.names == ["number"]
    found = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    assert pa.concat_tables(found).to_pydict() == {"number": [8, 9, 10]}
    failing = flight.FlightDescriptor.for_command(statement("SELECT nothing FROM numbers"))
    with pytest.raises(pa.ArrowInvalid, match="nothing"):
        client.get_flight_info(failing)


@pytest.fixture
def connection(served):
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    with dbapi.connect(f"grpc://{served.flight}", autocommit=True) as connection:
        yield connection


@pytest.fixture
def adbc(connection):
    with connection.cursor() as cursor:
        yield cursor


@pytest.mark.client("ADBC Flight SQL", "queries with parameters")
def test_adbc_runs_queries(adbc):
    adbc.execute("SELECT user, price FROM orders WHERE user = ? AND price > ?", ("ann", 1.0))
    assert adbc.fetch_arrow_table().to_pylist() == [{"user": "ann", "price": 1.5}]


@pytest.mark.client("ADBC Flight SQL", "queries with parameters")
def test_adbc_has_the_types_of_what_was_bound(adbc):
    adbc.execute("SELECT ? * 2 AS twice FROM orders WHERE user = 'ann' AND price = 1.5", (1.25,))
    assert adbc.fetchall() == [(2.5,)]
    adbc.execute("SELECT ? AS given FROM orders WHERE user = 'ann' AND price = 1.5", ("x",))
    assert adbc.fetchall() == [("x",)]


@pytest.mark.client("ADBC Flight SQL", "ingest")
def test_adbc_ingests_rows(adbc):
    rows = pa.table({"name": ["a", "b"], "price": [1.5, None]})
    assert adbc.adbc_ingest("adbc_rows", rows, mode="create") == 2
    adbc.execute("SELECT name, price FROM adbc_rows ORDER BY name")
    assert adbc.fetchall() == [("a", 1.5), ("b", None)]


@pytest.mark.client("ADBC Flight SQL", "catalog")
def test_adbc_lists_tables(connection):
    objects = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
    schemas = [schema for catalog in objects for schema in catalog["catalog_db_schemas"]]
    names = {table["table_name"] for schema in schemas for table in schema["db_schema_tables"]}
    assert {"orders", "numbers"} <= names
