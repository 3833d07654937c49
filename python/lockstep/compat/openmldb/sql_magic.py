"""The magics ``%sql`` and ``%%sql`` of notebooks."""

from __future__ import annotations

from typing import Any

from .dbapi import Connection


def register(connection: Connection, test: bool = False) -> Any:
    """Registers ``%sql`` and ``%%sql``, which run statements on a connection; returns the shell.

    Needs IPython. With ``test`` it makes a shell where the program has none.
    """
    import IPython

    shell = IPython.get_ipython()
    if shell is None and test:
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell()
    if shell is None:
        raise RuntimeError("there is no IPython shell to register %sql with")

    def sql(line: str, cell: str | None = None) -> None:
        text = line if cell is None else cell
        cursor = connection.cursor()
        cursor.execute(text)
        if cursor.description is not None:
            print(table_of([column[0] for column in cursor.description], cursor.fetchall()))

    shell.register_magic_function(sql, "line_cell", "sql")
    return shell


def table_of(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    """Returns rows as a table of text."""
    cells = [names, *(["NULL" if value is None else str(value) for value in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])
