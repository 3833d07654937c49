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
    """Holds the rows of a query, or the result of another statement.

    A relation from ``db.sql`` is lazy: its columns are known immediately, the query runs when rows
    are first fetched, and the relation then keeps the rows. A relation from ``db.execute`` has run.

    ``len(relation)`` is the number of rows. Iteration returns all rows as tuples, including rows
    already fetched. A notebook shows the first 20 rows. A relation has the Arrow stream interface,
    so that pyarrow, polars and DuckDB can read it directly.

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
        """Column names of the query, which may repeat. Does not run the query.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").columns
        ['one', 'letter']
        """
        return [name for name, _ in self._described().columns]

    @property
    def types(self) -> list[str]:
        """SQL types of the columns, in the order of ``columns``. Does not run the query.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").types
        ['INT', 'STRING']
        """
        return [data_type for _, data_type in self._described().columns]

    @property
    def rows_affected(self) -> int | None:
        """Number of rows written by a statement that writes; otherwise ``None``.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> created = db.execute("CREATE TABLE t (a INT)")
        >>> db.execute("INSERT INTO t VALUES (1), (2)").rows_affected
        2
        """
        return self._ran().rows_affected

    @property
    def message(self) -> str | None:
        """Name of a statement that returns no rows, such as ``CREATE TABLE``; otherwise ``None``.

        >>> import lockstep
        >>> lockstep.connect().execute("CREATE TABLE t (a INT)").message
        'CREATE TABLE'
        """
        return self._ran().message

    @property
    def has_run(self) -> bool:
        """Whether the query has run. Always true for a relation from ``db.execute``.

        >>> import lockstep
        >>> relation = lockstep.connect().sql("SELECT 1 AS one")
        >>> relation.has_run, relation.run().has_run
        (False, True)
        """
        return self._output is not None

    def run(self, progress: Callable[[float], object] | None = None) -> Relation:
        """Runs the query, unless it has already run, and returns this relation.

        - ``progress``: function called with the fraction done, from 0 to 1, on any thread. If it
          raises an exception, the query is cancelled and ``run`` raises the exception.

        Raises ``Error`` for errors that depend on values, 57014 after ``statement_timeout``, and
        53200 if the query exceeds its memory limit.

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

        Requires pandas and pyarrow: ``pip install "lockstep-db[pandas]"``.

        A number is appended to a repeated column name, as in ``a:2``. Numeric and BOOL columns that
        contain NULL have pandas' nullable types. TIMESTAMP is ``datetime64`` without a time zone,
        in UTC.

        Raises ``Error`` with the code 58P01 if pandas or pyarrow is not installed, and the errors
        of ``run``.

        Cost: copies the rows.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").df()
           one letter
        0    1      a
        """
        return to_pandas(self.arrow())

    def arrow(self) -> pyarrow.Table:
        """Returns the rows as a pyarrow table.

        Requires pyarrow, which is also installed by ``pip install "lockstep-db[pandas]"``.

        A number is appended to a repeated column name, as in ``a:2``.

        Raises ``Error`` with the code 58P01 if pyarrow is not installed, and the errors of ``run``.

        Cost: copies no rows; the table shares the memory of the relation.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").arrow().to_pydict()
        {'one': [1], 'letter': ['a']}
        """
        require("pyarrow", "to create an Arrow table")
        return self._ran().pyarrow()

    def pl(self) -> polars.DataFrame:
        """Returns the rows as a polars data frame.

        Requires polars: ``pip install "lockstep-db[polars]"``.

        A number is appended to a repeated column name, as in ``a:2``.

        Raises ``Error`` with the code 58P01 if polars is not installed, and the errors of ``run``.

        >>> import lockstep
        >>> lockstep.connect().sql("SELECT 1 AS one, 'a' AS letter").pl().rows()
        [(1, 'a')]
        """
        return require("polars", "to create a polars data frame").DataFrame(self._ran().arrow())

    def to_numpy(self) -> dict[str, Any]:
        """Returns the columns as a dict of numpy arrays by column name.

        Requires numpy and pyarrow, which are also installed by
        ``pip install "lockstep-db[pandas]"``.

        A number is appended to a repeated column name, as in ``a:2``. An integer or BOOL column
        that contains NULL is a masked array; in FLOAT and DOUBLE columns, NULL is NaN. TIMESTAMP is
        ``datetime64[ms]`` in UTC, DATE is ``datetime64[D]``; STRING, ARRAY and MAP are arrays of
        Python objects.

        Raises ``Error`` with the code 58P01 if numpy or pyarrow is not installed, and the errors of
        ``run``.

        Cost: copies the columns.

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
        """Runs the query and yields batches of rows as they are computed, for results of any size.

        - ``rows``: number of rows per batch; the last batch may have fewer.
        - ``shuffle``: size of the shuffle buffer in rows, or ``True`` for 65,536 rows. Each block
          of that many new rows is shuffled together with the buffered rows; half of the rows are
          then yielded and half stay in the buffer. The order is a complete shuffle only if the
          buffer can hold all rows. Uses memory for twice that many rows.
        - ``seed``: seed of the random order. The same rows and the same seed produce the same order
          on every machine.

        Does not keep the rows: each call runs the query again, over the rows stored at that time.
        If the relation has already run, yields the rows that it holds. The query is cancelled when
        the iterator is destroyed. A server cancels a query if the client reads no rows for
        ``limits.write_timeout_ms``.

        Raises ``Error`` with the code 22023 if ``rows`` is less than 1, 58P01 if pyarrow is not
        installed, and the errors of ``run``.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("t", [{"a": number} for number in range(5)])
        >>> [batch.num_rows for batch in db.sql("SELECT a FROM t").batches(2)]
        [2, 2, 1]
        >>> [batch["a"].to_pylist() for batch in db.sql("SELECT a FROM t").batches(3, shuffle=True)]
        [[0, 2, 1], [3, 4]]
        """
        if rows < 1:
            raise Error(f"`rows` must be at least 1, found {rows}", code="22023")
        if (buffer := buffer_rows(shuffle)) < 0:
            raise Error(f"`shuffle` must not be negative, found {shuffle}", code="22023")
        if buffer:
            return resized(shuffled(self.batches(buffer), buffer, seed), rows)
        pyarrow = require("pyarrow", "to create Arrow batches")
        if self._query is None or self._output is not None:
            whole = self.arrow().combine_chunks()
            return iter(whole.to_batches(max_chunksize=rows))
        return batches_of(self._query.batches(rows), pyarrow)

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

        - ``rows``: number of rows per item.
        - ``label``: column to predict. With it, an item is a pair of a dict of the features and the
          label; without it, an item is a dict of all columns.
        - ``shuffle``, ``seed``: as in ``batches``; ``dataset.set_epoch(n)`` changes the order.
        - ``shard``: pair of a shard's number, starting at 0, and the number of shards, if several
          processes share the rows: for example the rank and the world size.

        A column is a tensor of its type; TIMESTAMP is milliseconds and DATE is days, as integers;
        STRING, ARRAY and MAP are Python lists. NULL in a FLOAT or DOUBLE column is NaN. The query
        runs once, during this call, and writes a temporary file. Workers of the ``DataLoader`` read
        different parts of the file, so that each row is returned exactly once.

        Raises ``Error``: 58P01 if PyTorch or pyarrow is not installed, 42703 if ``label`` is not a
        column, 22004 during iteration for NULL in a column other than FLOAT or DOUBLE, and the
        errors of ``run``.

        >>> import lockstep
        >>> from torch.utils.data import DataLoader  # doctest: +SKIP
        >>> rows = lockstep.connect().sql("SELECT 1.5 AS x, 2 AS y")
        >>> dataset = rows.to_torch(256, label="y", shuffle=True)  # doctest: +SKIP
        >>> for features, y in DataLoader(dataset, batch_size=None):  # doctest: +SKIP
        ...     print(features["x"], y)
        tensor([1.5000], dtype=torch.float64) tensor([2], dtype=torch.int32)
        """
        require("torch", "to create a PyTorch dataset")
        require("pyarrow", "to create a PyTorch dataset")
        from ._torch import RowDataset, check_shard

        check_label(label, self.columns)
        check_shard(shard)
        if rows < 1:
            raise Error(f"`rows` must be at least 1, found {rows}", code="22023")
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

        The parameters are as in ``to_torch``. An element is a dict of tensors, or with ``label`` a
        pair of a dict of the features and the label. Each iteration runs the query and yields the
        rows as they are computed. ARRAY and MAP columns are not supported.

        Raises ``Error``: 58P01 if TensorFlow or pyarrow is not installed, 42703 if ``label`` is not
        a column, 42804 for an ARRAY or MAP column, 22004 during iteration for NULL in a column
        other than FLOAT or DOUBLE, and the errors of ``batches``.

        >>> import lockstep
        >>> rows = lockstep.connect().sql("SELECT 1.5 AS x, 2 AS y")
        >>> model.fit(rows.to_tf(256, label="y", shuffle=True))  # doctest: +SKIP
        """
        require("tensorflow", "to create a TensorFlow dataset")
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
        """Splits the rows by time into training, validation and test rows.

        - ``by``: column with the time of a row: TIMESTAMP, DATE or an integer type.
        - ``train_until``: start of the test rows, or of the validation rows with ``valid_until``: a
          ``datetime``, a ``date``, a string such as ``'2024-05-01'``, or a number in the unit of
          the column.
        - ``valid_until``: end of the validation rows and start of the test rows. Without it, there
          are no validation rows.
        - ``test_until``: end of the test rows (exclusive); by default, there is no end.
        - ``gap``: maximum time between a row and the time at which its label is known: a
          ``timedelta``, a string such as ``'7d'``, or a number. Rows at most ``gap`` before
          ``train_until`` or ``valid_until`` are in no part.
        - ``nulls``: ``"refuse"`` to raise an error for rows whose time is NULL, ``"drop"`` to
          exclude them from all parts.

        Training rows are the rows before ``train_until - gap``. If the label of each row is known
        at most ``gap`` after its time, all labels of the training rows are known at
        ``train_until``. Features of later rows can use earlier rows, as in production: the parts
        are queries over this query, so that windows see all rows. No rows are copied.

        Returns the relations of the parts in order of time: two, or three with ``valid_until``.

        Raises ``Error``: 42703 if the query does not have the column, 42804 if its type is not
        supported, 22004 if the time of a row is NULL, 22023 if the bounds are not in ascending
        order. With ``nulls="refuse"``, runs the query once, with only that column, to count the
        NULLs.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("t", [{"day": number} for number in range(10)])
        >>> train, test = db.sql("SELECT day FROM t").split(by="day", train_until=7, gap=2)
        >>> train.fetchall(), test.fetchall()
        ([(0,), (1,), (2,), (3,), (4,)], [(7,), (8,), (9,)])
        """
        if self._around is None:
            raise Error(
                "a relation from db.execute cannot be split", code="0A000", hint="Use db.sql."
            )
        found = [of for name, of in zip(self.columns, self.types, strict=True) if name == by]
        if len(found) != 1:
            many = f"{len(found)} columns" if found else "no column"
            raise Error(f"the query has {many} `{by}`", code="42703")
        if found[0] not in ("TIMESTAMP", "DATE", "BIGINT", "INT", "SMALLINT"):
            raise Error(f"column `{by}` of type {found[0]} cannot be used as a time", code="42804")
        name = f"`{by}`"
        bounds = [train_until] if valid_until is None else [train_until, valid_until]
        parts = conditions(name, found[0], bounds, gap, test_until)
        if nulls == "refuse":
            counted = self._around("SELECT count(*) AS n FROM (", f") WHERE {name} IS NULL")
            if (count := counted.fetchall()[0][0]) > 0:
                raise Error(
                    f"column `{by}` is NULL in {count} rows",
                    code="22004",
                    kind="fix data",
                    hint="Exclude the rows with WHERE or nulls='drop'.",
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
        """Writes the rows to a file or a directory as they are computed; returns the row count.

        - ``path``: a file, or a directory if it ends in ``/``, is an existing directory, or
          ``partition_by`` is specified.
        - ``format``: file format; the default is the file extension, or CSV for other extensions.
          LibSVM gets the roles of the columns from signatures:
          ``SELECT binary_label(paid) AS label, continuous(price), …``.
        - ``mode``: what to do if files already exist.
        - ``partition_by``: columns whose values become subdirectories ``name=value``, outermost
          first, as in Hive, Spark and DuckDB.
        - ``files``: number of files in a directory without partitions. With more than one file,
          all rows are held in memory.
        - ``delimiter``, ``header``, ``null_value``, ``quote``: as the options of ``INTO OUTFILE``.

        Does not keep the rows in the relation. The files become visible when all are complete; if
        an error occurs, no files are written. For a server, this process writes the files.

        Raises ``Error``: 58P02 if a file already exists, 58P01 if the directory does not exist,
        42703 if the query does not have a column, 22023 for conflicting options, and the errors of
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
                f"column name in partition_by contains a comma: {separated[0]!r}",
                code="22023",
                hint="Pass a list of names; rename a column whose name contains a comma.",
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
                "cannot write a relation without columns",
                code="22023",
                hint="Call write on the relation of a query: db.sql(…).write(path).",
            )
        with watched("write"):
            written = target.write(os.fspath(path), options)
        for text in written.warnings:
            warnings.warn(text, LockstepWarning, stacklevel=2)
        assert written.rows_affected is not None, "rows were written"
        return written.rows_affected

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows not yet fetched, as tuples.

        TIMESTAMP is a naive ``datetime`` in UTC, DATE is a ``date``, and NULL is ``None``.

        Raises the errors of ``run``.

        Cost: one Python object per value; ``df`` and ``arrow`` return whole columns.

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
        """Returns the next row as a tuple; ``None`` after the last row.

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
        """Returns the next ``size`` rows as tuples, or fewer at the end.

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
        """Returns the rows from index ``start`` (0-based) up to but excluding ``end``, as tuples.

        Does not change the position of ``fetchone``, ``fetchmany`` and ``fetchall``. Raises the
        errors of ``run``.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("t", [{"a": number} for number in range(5)])
        >>> db.sql("SELECT a FROM t ORDER BY a").rows(1, 3)
        [(1,), (2,)]
        """
        return self._ran().tuples(min(start, len(self)), min(end, len(self)))

    def show(self, rows: int = ROWS_SHOWN, width: int | None = None) -> None:
        """Prints the first rows and the number of rows.

        - ``rows``: maximum number of rows to print.
        - ``width``: maximum width of a cell, in characters. The default is 60, except that the last
          column is printed completely, on several lines if necessary, if it contains at most 8,000
          characters of text in total, such as plans and definitions.

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


def batches_of(found: _lockstep.Batches, pyarrow: Any) -> Iterator[pyarrow.RecordBatch]:
    """Yields the batches of a running query."""
    for batch in found:
        yield pyarrow.record_batch(batch)
    for text in found.take_warnings():
        warnings.warn(text, LockstepWarning, stacklevel=2)


def _html(text: str) -> str:
    """Formats a cell: keeps line breaks and indentation, and folds a long string."""
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
