"""Notebook magics ``%sql`` and ``%%sql``."""

from __future__ import annotations

from typing import Any

from .dbapi import Connection


def register(connection: Connection, test: bool = False) -> Any:
    """Registers ``%sql`` and ``%%sql``, which run statements on a connection.

    Returns the IPython shell. Requires IPython. With ``test``, creates a shell if the program has
    none. Raises ``RuntimeError`` if there is no shell.
    """
    import IPython

    shell = IPython.get_ipython()
    if shell is None and test:
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell()
    if shell is None:
        raise RuntimeError("cannot register %sql: the program does not run in an IPython shell")

    def sql(line: str, cell: str | None = None) -> None:
        text = line if cell is None else cell
        cursor = connection.cursor()
        cursor.execute(text)
        if cursor.description is not None:
            print(table_of([column[0] for column in cursor.description], cursor.fetchall()))

    shell.register_magic_function(sql, "line_cell", "sql")
    return shell


def table_of(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    """Returns rows formatted as a text table."""
    cells = [names, *(["NULL" if value is None else str(value) for value in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])
