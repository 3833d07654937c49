"""The table of clients in `docs/postgres.md` is what the tests of this run say. It runs last."""

from clients import matrix


def test_the_table_of_clients_is_what_was_tested(client_matrix, request):
    """`pytest --write-client-matrix` writes the table."""
    if request.config.getoption("--write-client-matrix"):
        matrix.write(client_matrix)
    is_complete = request.config.args_source.name == "TESTPATHS" and not any(
        request.config.getoption(option) for option in ("keyword", "markexpr", "lf")
    )
    assert matrix.differences(client_matrix, is_complete=is_complete) == []
