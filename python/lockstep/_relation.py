"""Relations: the results of statements, and queries that run when their rows are fetched."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ._arrow import require, to_numpy, to_pandas
from ._error import Error, LockstepWarning
from ._progress import watched
from ._shuffle import buffer_rows, resized, shuffled
from ._split import conditions
from ._tensor import check_label

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from . import _lockstep

ROWS_SHOWN = 20

BATCH_ROWS = 65_536

TEXT_SHOWN = 200


class Relation:
    """Holds the rows of a query, or the outcome of another statement.

    A relation made by ``db.sql`` is lazy: its columns are known at once, it runs when its rows are
    first fetched, and holds them from then on. A relation made by ``db.execute`` has run.

    ``len(relation)`` is the number of rows, iterating returns all rows as tuples, also those that
    were fetched, and a notebook shows the first 20. It has the Arrow stream interface, so that
    pyarrow, polars and DuckDB take it as it is.

    >>> import lockstep
    >>> relation = lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter")
    >>> relation.has_run, len(relation), list(relation)
    (False, 1, [(1, 'a')])
    """

    def __init__(
        self,
        output: _lockstep.Output | None = None,
        query: _lockstep.Relation | None = None,
        around: Callable[[str, str], Relation] | None = None,
    ) -> None:
        self._output = output
        self._query = query
        self._around = around
        self._fetched = 0
        if output is not None:
            _warn(output)

    @property
    def columns(self) -> list[str]:
        """The column names, as the query gives them: they may repeat. Runs nothing.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").columns
        ['one', 'letter']
        """
        return [name for name, _ in self._described().columns]

    @property
    def types(self) -> list[str]:
        """The column types, as SQL writes them, in the order of ``columns``. Runs nothing.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").types
        ['INT', 'STRING']
        """
        return [data_type for _, data_type in self._described().columns]

    @property
    def rows_affected(self) -> int | None:
        """The number of rows written, for a statement that writes; otherwise ``None``.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> created = db.execute("CREATE TABLE t (a INT)")
        >>> db.execute("INSERT INTO t VALUES (1), (2)").rows_affected
        2
        """
        return self._ran().rows_affected

    @property
    def message(self) -> str | None:
        """The name of a statement without rows, such as ``CREATE TABLE``; otherwise ``None``.

        >>> import lockstep
        >>> lockstep.connect().execute("CREATE TABLE t (a INT)").message
        'CREATE TABLE'
        """
        return self._ran().message

    @property
    def has_run(self) -> bool:
        """Whether the rows are there: a query has run, or the relation is of ``db.execute``.

        >>> import lockstep
        >>> relation = lockstep.connect().sql("SELECT 1 AS one")
        >>> relation.has_run, relation.run().has_run
        (False, True)
        """
        return self._output is not None

    def run(self, progress: Callable[[float], object] | None = None) -> Relation:
        """Runs the query now, if it has not run yet, and returns this relation.

        - ``progress``: called with the fraction that is done, from 0 to 1, from any thread. What it
          raises ends the query.

        Raises ``Error`` for what only the values show, 57014 after ``statement_timeout``, and 53200
        where the query needs more memory than it may have.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one").run().fetchall()
        [(1,)]
        """
        if self._output is None:
            assert self._query is not None, "a relation has an output or a query"
            with contextlib.nullcontext() if progress else watched("query"):
                self._output = self._query.collect(progress)
            _warn(self._output)
        return self

    def df(self) -> pandas.DataFrame:
        """Returns the rows as a pandas data frame.

        A repeated column name gets a number, as in ``a:2``. Columns of numbers and booleans that
        hold NULLs have pandas' nullable types. TIMESTAMP is ``datetime64`` without a zone, in UTC.

        Raises ``Error`` with the code 58P01 where pandas or pyarrow is not installed, and those of
        ``run``. Cost: a copy of the rows.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").df()
           one letter
        0    1      a
        """
        return to_pandas(self.arrow())

    def arrow(self) -> pyarrow.Table:
        """Returns the rows as a pyarrow table.

        A repeated column name gets a number, as in ``a:2``.

        Raises ``Error`` with the code 58P01 where pyarrow is not installed, and those of ``run``.
        Cost: none for each row; the table has the memory of the relation.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").arrow().to_pydict()
        {'one': [1], 'letter': ['a']}
        """
        require("pyarrow", "to make an Arrow table")
        return self._ran().pyarrow()

    def pl(self) -> polars.DataFrame:
        """Returns the rows as a polars data frame.

        A repeated column name gets a number, as in ``a:2``.

        Raises ``Error`` with the code 58P01 where polars is not installed, and those of ``run``.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").pl().rows()
        [(1, 'a')]
        """
        return require("polars", "to make a polars data frame").DataFrame(self._ran().arrow())

    def to_numpy(self) -> dict[str, Any]:
        """Returns the columns as numpy arrays, by their names.

        A repeated column name gets a number, as in ``a:2``. A column that holds NULLs is a masked
        array; floats have NaN there. TIMESTAMP is ``datetime64[ms]`` in UTC, DATE
        ``datetime64[D]``; STRING, ARRAY and MAP are arrays of Python objects.

        Raises ``Error`` with the code 58P01 where pyarrow is not installed, and those of ``run``.
        Cost: a copy of the columns.

        >>> import lockstep
        >>> columns = lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").to_numpy()
        >>> columns["one"].tolist(), columns["letter"].tolist()
        ([1], ['a'])
        """
        table = self.arrow()
        return {name: to_numpy(table.column(at)) for at, name in enumerate(table.column_names)}

    def batches(
        self, rows: int = BATCH_ROWS, *, shuffle: bool | int = False, seed: int = 0
    ) -> Iterator[pyarrow.RecordBatch]:
        """Runs the query and yields its rows while they are computed: for results of any size.

        - ``rows``: how many rows each batch has; the last one may have fewer.
        - ``shuffle``: how many rows are held to be mixed, or ``True`` for 65,536. Each so many new
          rows are mixed with those that are held, and half of them go on: rows that are far apart
          may meet, but the order is that of a whole shuffle only where all rows are held. The
          memory is that of twice as many rows.
        - ``seed``: what the order is drawn from. The same rows and seed give the same order, on
          every machine.

        The relation holds no rows, so each call runs the query again, over the rows that are stored
        then; one that has run already gives the rows that it holds. The query ends when the
        iterator is dropped. A server ends a query whose rows nobody takes for its
        ``limits.write_timeout_ms``.

        Raises ``Error`` with the code 22023 for ``rows`` below 1, 58P01 where pyarrow is not
        installed, and those of ``run``.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("t", [{"a": number} for number in range(5)])
        >>> [batch.num_rows for batch in db.sql("SELECT a FROM t").batches(2)]
        [2, 2, 1]
        >>> [batch["a"].to_pylist() for batch in db.sql("SELECT a FROM t").batches(3, shuffle=True)]
        [[0, 2, 1], [3, 4]]
        """
        if rows < 1:
            raise Error(f"a batch has at least 1 row, found rows={rows}", code="22023")
        if (buffer := buffer_rows(shuffle)) < 0:
            raise Error(f"a shuffle holds at least 1 row, found {shuffle}", code="22023")
        if buffer:
            return resized(shuffled(self.batches(buffer), buffer, seed), rows)
        pyarrow = require("pyarrow", "to make Arrow batches")
        if self._query is None or self._output is not None:
            whole = self.arrow().combine_chunks()
            return iter(whole.to_batches(max_chunksize=rows))
        return _batches(self._query.batches(rows), pyarrow)

    def to_torch(
        self,
        rows: int = 1_024,
        *,
        label: str | None = None,
        shuffle: bool | int = False,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ) -> Any:
        """Returns a PyTorch ``IterableDataset``, for ``DataLoader(dataset, batch_size=None)``.

        - ``rows``: how many rows each item has.
        - ``label``: the column to be predicted: an item is then a pair of the features and the
          label. Without it, an item is a dict of all columns.
        - ``shuffle``, ``seed``: as for ``batches``; ``dataset.set_epoch(n)`` draws another order.
        - ``shard``: (number, count) where several processes share the rows, such as the rank and
          the world size.

        A column is a tensor of its type; TIMESTAMP is milliseconds and DATE days, as integers;
        texts and lists are lists. A NULL of FLOAT or DOUBLE is NaN. The query runs once, now, into
        a temporary file: workers of the ``DataLoader`` read different parts of it, so that each
        row comes once.

        Raises ``Error``: 58P01 where PyTorch or pyarrow is not installed, 42703 for a label that is
        no column, 22004 while iterating for a NULL in a column of another type, and those of
        ``run``.

        >>> import lockstep
        >>> from torch.utils.data import DataLoader  # doctest: +SKIP
        >>> rows = lockstep.connect().sql("SELECT 1.5 AS x, 2 AS y")
        >>> dataset = rows.to_torch(256, label="y", shuffle=True)  # doctest: +SKIP
        >>> for features, y in DataLoader(dataset, batch_size=None):  # doctest: +SKIP
        ...     print(features["x"], y)
        tensor([1.5000], dtype=torch.float64) tensor([2], dtype=torch.int32)
        """
        require("torch", "to make a PyTorch dataset")
        require("pyarrow", "to make a PyTorch dataset")
        from ._torch import RowDataset, check_shard

        check_label(label, self.columns)
        check_shard(shard)
        if rows < 1:
            raise Error(f"a batch has at least 1 row, found rows={rows}", code="22023")
        return RowDataset(
            self.batches,
            rows=rows,
            label=label,
            buffer=buffer_rows(shuffle),
            seed=seed,
            shard=shard,
        )

    def to_tf(
        self,
        rows: int = 1_024,
        *,
        label: str | None = None,
        shuffle: bool | int = False,
        seed: int = 0,
    ) -> Any:
        """Returns a ``tf.data.Dataset`` of batches, for ``model.fit``.

        The arguments are those of ``to_torch``. An element is a dict of tensors, with a label a
        pair. Each iteration runs the query and gives the rows while they are computed. ARRAY and
        MAP are not taken.

        Raises ``Error``: 58P01 where TensorFlow or pyarrow is not installed, 42703 for a label that
        is no column, 42804 for a column that is a list, and those of ``batches``.

        >>> import lockstep
        >>> rows = lockstep.connect().sql("SELECT 1.5 AS x, 2 AS y")
        >>> model.fit(rows.to_tf(256, label="y", shuffle=True))  # doctest: +SKIP
        """
        require("tensorflow", "to make a TensorFlow dataset")
        from ._tensorflow import dataset

        check_label(label, self.columns)
        types = dict(zip(self.columns, self.types, strict=True))

        def batches() -> Iterator[pyarrow.RecordBatch]:
            return self.batches(rows, shuffle=shuffle, seed=seed)

        return dataset(batches, types, label)

    def split(
        self,
        *,
        by: str,
        train_until: Any,
        valid_until: Any = None,
        test_until: Any = None,
        gap: Any = None,
        nulls: Literal["refuse", "drop"] = "refuse",
    ) -> tuple[Relation, ...]:
        """Splits the rows by time, into those to train with and those to test with.

        - ``by``: the column with the time of a row: TIMESTAMP, DATE, or an integer.
        - ``train_until``: where the test rows begin: a ``datetime``, a ``date``, a text such as
          ``'2024-05-01'``, or a number as the column has it.
        - ``valid_until``: where the test rows begin if there are rows for validation, which then
          begin at ``train_until``.
        - ``test_until``: where the test rows end; without it there is no end.
        - ``gap``: how far a label looks ahead of its row: a ``timedelta``, a text such as ``'7d'``,
          or a number. The rows of the last ``gap`` before each bound are in no part.
        - ``nulls``: whether a row without a time raises, or is in no part.

        Rows to train with are those before ``train_until - gap``: if the label of each row is
        decided less than or exactly ``gap`` after its time, every label of theirs is known at
        ``train_until``. Features of later rows may look back at rows before, as they will in
        production. The parts are queries over this one, so their windows see all rows; nothing is
        copied.

        Returns the relations of the parts in order of time: two, or three with ``valid_until``.

        Raises ``Error``: 42703 for a column that the query does not have, 42804 for one that is no
        time, 22004 for rows without a time, and 22023 for bounds that are not in order. Counting
        the rows without a time runs the query once, with that column only.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("t", [{"day": number} for number in range(10)])
        >>> train, test = db.sql("SELECT day FROM t").split(by="day", train_until=7, gap=2)
        >>> train.fetchall(), test.fetchall()
        ([(0,), (1,), (2,), (3,), (4,)], [(7,), (8,), (9,)])
        """
        if self._around is None:
            raise Error("the rows of db.execute are not split", code="0A000", hint="Use db.sql.")
        found = [of for name, of in zip(self.columns, self.types, strict=True) if name == by]
        if len(found) != 1:
            many = f"{len(found)} columns" if found else "no column"
            raise Error(f"the query has {many} `{by}`", code="42703")
        if found[0] not in ("TIMESTAMP", "DATE", "BIGINT", "INT", "SMALLINT"):
            raise Error(f"column `{by}` is {found[0]}, which is no time", code="42804")
        name = f"`{by}`"
        bounds = [train_until] if valid_until is None else [train_until, valid_until]
        parts = conditions(name, found[0], bounds, gap, test_until)
        if nulls == "refuse":
            counted = self._around("SELECT count(*) AS n FROM (", f") WHERE {name} IS NULL")
            if (count := counted.fetchall()[0][0]) > 0:
                raise Error(
                    f"{count} rows have no time in column `{by}`",
                    code="22004",
                    kind="fix data",
                    hint="Leave them out with WHERE; with nulls='drop' they are in no part.",
                )
        return tuple(self._around("SELECT * FROM (", f") WHERE {part}") for part in parts)

    def write(
        self,
        path: str | os.PathLike[str],
        *,
        format: Literal["csv", "parquet", "json", "arrow", "libsvm", "tfrecord"] | None = None,
        mode: Literal["error_if_exists", "overwrite", "append"] = "error_if_exists",
        partition_by: str | Sequence[str] | None = None,
        files: int = 1,
        delimiter: str | None = None,
        header: bool | None = None,
        null_value: str | None = None,
        quote: str | None = None,
    ) -> int:
        """Writes the rows to a file or a folder while they are computed, and returns their number.

        - ``path``: a file; or a folder, where it ends in ``/``, exists as one, or is partitioned.
        - ``format``: the one that the end of the path names, or else CSV. LibSVM takes the roles of
          the columns from signatures: ``SELECT binary_label(paid) AS label, continuous(price), …``.
        - ``mode``: what happens with files that exist already.
        - ``partition_by``: the columns whose values are folders ``name=value``, outermost first, as
          Hive, Spark and DuckDB read them.
        - ``files``: the number of files of a folder without partitions. More than one need the
          memory of all rows.
        - ``delimiter``, ``header``, ``null_value``, ``quote``: as the options of ``INTO OUTFILE``.

        The relation holds no rows afterwards. The files become visible when all are complete; after
        an error there are none. A relation of a server is written by this process.

        Raises ``Error``: 58P02 where a file exists, 58P01 where the folder does not, 42703 for a
        column that the query does not have, 22023 for options that do not go together, and those of
        ``run``.

        >>> import lockstep, pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "sums"
        >>> query = lockstep.connect().sql("SELECT 1 AS day, 7 AS total")
        >>> query.write(folder, format="csv", partition_by="day")
        1
        >>> (folder / "day=1" / "part-00000.csv").read_text()
        'total\\n7\\n'
        """
        names = [partition_by] if isinstance(partition_by, str) else list(partition_by or [])
        if separated := [name for name in names if "," in name]:
            raise Error(
                f"a name of partition_by has a comma: {separated[0]!r}",
                code="22023",
                hint="Give a list of names; rename a column whose name has a comma.",
            )
        given = {
            "format": format,
            "mode": mode,
            "partition_by": ",".join(names) or None,
            "coalesce": None if files == 1 else files,
            "delimiter": delimiter,
            "header": header,
            "null_value": null_value,
            "quote": quote,
        }
        options = {name: value for name, value in given.items() if value is not None}
        target = self._output or self._query
        assert target is not None, "a relation has an output or a query"
        if not self.columns:
            raise Error(
                "a statement without rows cannot be written",
                code="22023",
                hint="Write the relation of a query: db.sql(…).write(path).",
            )
        with watched("write"):
            written = target.write(os.fspath(path), options)
        for text in written.warnings:
            warnings.warn(text, LockstepWarning, stacklevel=2)
        assert written.rows_affected is not None, "rows were written"
        return written.rows_affected

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows that were not fetched yet, as tuples.

        TIMESTAMP is a naive ``datetime`` in UTC, DATE a ``date``, NULL is ``None``.

        Raises the errors of ``run``. Cost: a Python object for each value; ``df`` and ``arrow``
        return whole columns.

        >>> import lockstep
        >>> relation = lockstep.connect().sql("SELECT 1 AS one, DATE('2024-05-01') AS day")
        >>> relation.fetchall()
        [(1, datetime.date(2024, 5, 1))]
        >>> relation.fetchall()
        []
        """
        start, self._fetched = self._fetched, len(self)
        return self._ran().tuples(start, self._fetched)

    def fetchone(self) -> tuple[Any, ...] | None:
        """Returns the next row as a tuple, or ``None`` after the last.

        Raises the errors of ``run``.

        >>> import lockstep
        >>> relation = lockstep.connect().sql("SELECT 1 AS one")
        >>> relation.fetchone(), relation.fetchone()
        ((1,), None)
        """
        rows = self._ran().tuples(self._fetched, self._fetched + 1)
        self._fetched += len(rows)
        return rows[0] if rows else None

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        """Returns the next rows as tuples: ``size`` of them, and fewer at the end.

        Raises the errors of ``run``.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("t", [{"a": number} for number in range(5)])
        >>> relation = db.sql("SELECT a FROM t ORDER BY a")
        >>> relation.fetchmany(3), relation.fetchmany(3)
        ([(0,), (1,), (2,)], [(3,), (4,)])
        """
        end = min(len(self), self._fetched + max(size, 0))
        start, self._fetched = self._fetched, end
        return self._ran().tuples(start, end)

    def rows(self, start: int, end: int) -> list[tuple[Any, ...]]:
        """Returns the rows from index ``start``, 0-based, up to ``end``; whatever was fetched.

        Raises the errors of ``run``. It does not change what ``fetchone`` and the like return next.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("t", [{"a": number} for number in range(5)])
        >>> db.sql("SELECT a FROM t ORDER BY a").rows(1, 3)
        [(1,), (2,)]
        """
        return self._ran().tuples(min(start, len(self)), min(end, len(self)))

    def show(self, rows: int = ROWS_SHOWN, width: int | None = None) -> None:
        """Prints the first rows, and how many there are.

        - ``rows``: the most rows that are printed.
        - ``width``: the greatest width of a cell, in characters. Without it a cell has at most 60,
          but the texts of the last column stand whole, over several lines where they have them, as
          long as they are not much: plans and definitions.

        Raises the errors of ``run``.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("t", [{"a": number} for number in range(5)])
        >>> db.sql("SELECT a FROM t ORDER BY a").show(rows=2)
        a
        -
        0
        1
        … 3 more rows
        (5 rows)
        """
        print(self._text(rows, width))

    def __len__(self) -> int:
        return self._ran().row_count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._ran().tuples(0, len(self)))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._ran().arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return self._text(ROWS_SHOWN)

    def _repr_html_(self) -> str:
        from html import escape

        output = self._ran()
        if not output.columns:
            return f"<pre>{escape(self._text(0))}</pre>"
        names, is_number, rows = output.texts(ROWS_SHOWN)
        heads = "".join(f"<th>{escape(name)}</th>" for name in names)
        types = "".join(f"<td><small>{escape(data_type)}</small></td>" for data_type in self.types)
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="text-align: {"right" if number else "left"}">'
                + ("<i>NULL</i>" if cell is None else _html(cell))
                + "</td>"
                for number, cell in zip(is_number, row, strict=True)
            )
            + "</tr>"
            for row in rows
        )
        count = f"{len(self)} {'row' if len(self) == 1 else 'rows'}"
        if len(rows) < len(self):
            count = f"{len(rows)} of {count}"
        return (
            f"<table><thead><tr>{heads}</tr><tr>{types}</tr></thead><tbody>{body}</tbody></table>"
            f"<small>{count}</small>"
        )

    def _text(self, rows: int, width: int | None = None) -> str:
        output = self._ran()
        if output.columns:
            count = output.row_count
            return f"{output.draw(rows, width)}\n({count} {'row' if count == 1 else 'rows'})"
        message = output.message or "OK"
        return (
            message if output.rows_affected is None else f"{message} (rows: {output.rows_affected})"
        )

    def _described(self) -> _lockstep.Output | _lockstep.Relation:
        described = self._query if self._output is None else self._output
        assert described is not None, "a relation has an output or a query"
        return described

    def _ran(self) -> _lockstep.Output:
        output = self.run()._output
        assert output is not None, "a relation that has run has an output"
        return output


def _batches(found: _lockstep.Batches, pyarrow: Any) -> Iterator[pyarrow.RecordBatch]:
    for batch in found:
        yield pyarrow.record_batch(batch)
    for text in found.take_warnings():
        warnings.warn(text, LockstepWarning, stacklevel=2)


def _html(text: str) -> str:
    """Writes a cell: lines and indentation as they are, and a long text folded."""
    from html import escape

    shown = f'<span style="white-space: pre-wrap">{escape(text)}</span>'
    if "\n" not in text and len(text) <= TEXT_SHOWN:
        return escape(text) if "  " not in text else shown
    if len(text) <= TEXT_SHOWN:
        return shown
    return (
        f"<details><summary>{escape(text[:TEXT_SHOWN])}… ({len(text)} characters)</summary>"
        f"{shown}</details>"
    )


def _warn(output: _lockstep.Output) -> None:
    for text in output.warnings:
        warnings.warn(text, LockstepWarning, stacklevel=4)
