"""``OpenMLDBSdk``: statements whose results are pairs of success and result.

Each method returns ``(True, result)`` or ``(False, message)``, as in OpenMLDB's package; over
``openmldb.dbapi``.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from .. import dbapi
from .result import ResultSet, Schema


class OpenMLDBClusterSdkOptions:
    """ZooKeeper address of a cluster. Client options are ignored."""

    def __init__(self, zk_cluster: str, zk_path: str, *_: Any, **options: Any) -> None:
        self.zk_cluster = zk_cluster
        self.zk_path = zk_path
        self.options = options


class OpenMLDBStandaloneSdkOptions:
    """Host and port of a cluster."""

    def __init__(self, host: str, port: int | str, *_: Any, **options: Any) -> None:
        self.host = host
        self.port = port
        self.options = options


class RowBuilder:
    """Values of one row, appended in the order of the placeholders or columns."""

    def __init__(self, schema: Schema | None = None) -> None:
        self.values: list[Any] = []
        self._schema = schema

    def Init(self, string_bytes: int = 0) -> bool:
        """Starts a row; the size is ignored."""
        return True

    def Append(self, value: Any) -> bool:
        """Appends a value."""
        self.values.append(value)
        return True

    AppendBool = Append
    AppendInt16 = Append
    AppendInt32 = Append
    AppendInt64 = Append
    AppendFloat = Append
    AppendDouble = Append
    AppendString = Append
    AppendTimestamp = Append

    def AppendDate(self, year: int, month: int, day: int) -> bool:
        """Appends a date."""
        return self.Append(datetime.date(year, month, day))

    def AppendNULL(self) -> bool:
        """Appends NULL."""
        return self.Append(None)

    def Build(self) -> bool:
        """Ends a row."""
        return True

    def GetSchema(self) -> Schema | None:
        """Returns the columns of a request row."""
        return self._schema


class RowsBuilder:
    """Rows to insert together."""

    def __init__(self) -> None:
        self.rows: list[RowBuilder] = []

    def NewRow(self) -> RowBuilder:
        """Adds and returns a row."""
        self.rows.append(RowBuilder())
        return self.rows[-1]

    def GetCnt(self) -> int:
        """Returns the number of rows."""
        return len(self.rows)


class OpenMLDBSdk:
    """Runs statements on a cluster. Call ``init`` first."""

    def __init__(self, options: Any = None, is_cluster: bool = True, **options_map: Any) -> None:
        self.options_map = dict(options_map)
        if isinstance(options, OpenMLDBClusterSdkOptions):
            self.options_map.update(zk=options.zk_cluster, zkPath=options.zk_path)
        elif isinstance(options, OpenMLDBStandaloneSdkOptions):
            self.options_map.update(host=options.host, port=options.port)
        self.sdk: dbapi.Connection | None = None

    def init(self) -> bool:
        """Opens the connection; returns whether it succeeded."""
        try:
            self.sdk = dbapi.connect(**self.options_map)
        except dbapi.Error:
            return False
        return True

    def createDB(self, db: str) -> tuple[bool, Any]:
        """Creates a database."""
        return self._ran(lambda cursor: cursor.execute(f"CREATE DATABASE `{db}`") and "")

    def dropDB(self, db: str) -> tuple[bool, Any]:
        """Drops a database, which must be empty."""
        return self._ran(lambda cursor: cursor.execute(f"DROP DATABASE `{db}`") and "ok")

    def getDatabases(self) -> list[str]:
        """Returns the names of the databases."""
        return self._cursor().get_databases()

    def getTables(self, db: str) -> list[str]:
        """Returns the names of the tables of a database."""
        return self._cursor().get_tables(db)

    def getAllTables(self) -> list[str]:
        """Returns the names of the tables of all databases."""
        return self._cursor().get_all_tables()

    def isOnlineMode(self) -> bool:
        """Returns ``True``: statements always run in online mode."""
        return True

    def executeSQL(
        self, db: str | None, sql: str, row_builder: RowBuilder | None = None
    ) -> tuple[bool, Any]:
        """Runs a statement; with a row, runs a query in request mode."""
        if row_builder is not None:
            return self.doRequestQuery(db, sql, tuple(row_builder.values))
        return self._ran(lambda cursor: ResultSet.of(cursor, cursor.execute(sql)), db)

    executeQuery = executeSQL
    executeDDL = executeSQL

    def doQuery(self, db: str | None, sql: str) -> tuple[bool, Any]:
        """Runs a query."""
        return self.executeSQL(db, sql)

    def doParameterizedQuery(self, db: str | None, sql: str, data: Any) -> tuple[bool, Any]:
        """Runs a query with a value for each ``?``."""
        return self._ran(lambda cursor: ResultSet.of(cursor, cursor.execute(sql, tuple(data))), db)

    def doRequestQuery(self, db: str | None, sql: str, data: Any) -> tuple[bool, Any]:
        """Runs a query in request mode for one request row, a dict or a tuple."""
        return self._ran(lambda cursor: ResultSet.of(cursor, cursor.executeRequest(sql, data)), db)

    def doBatchRowRequest(
        self, db: str | None, sql: str, commonCol: Any, parameters: Any
    ) -> tuple[bool, Any]:
        """Runs a query in request mode for request rows."""

        def run(cursor: dbapi.Cursor) -> ResultSet:
            return ResultSet.of(cursor, cursor.batch_row_request(sql, commonCol, parameters))

        return self._ran(run, db)

    def doProc(self, db: str | None, sp: str, data: Any) -> tuple[bool, Any]:
        """Calls a deployment or procedure with one request row."""
        return self._ran(lambda cursor: ResultSet.of(cursor, cursor.callproc(sp, data)), db)

    def getInsertBuilder(self, db: str | None, sql: str) -> tuple[bool, Any]:
        """Creates a row for the placeholders of an INSERT."""
        return True, RowBuilder()

    def getInsertBatchBuilder(self, db: str | None, sql: str) -> tuple[bool, Any]:
        """Creates rows for the placeholders of an INSERT."""
        return True, RowsBuilder()

    def getRequestBuilder(self, db: str | None, sql: str) -> tuple[bool, Any]:
        """Creates a request row for a query."""

        def run(cursor: dbapi.Cursor) -> RowBuilder:
            with cursor.connection.calling(sql):
                prepared = cursor.connection.lockstep.prepare(sql.strip().rstrip(";"))
            return RowBuilder(Schema(prepared.input))

        return self._ran(run, db)

    def executeInsert(
        self, db: str | None, sql: str, row_builder: RowBuilder | RowsBuilder | None = None
    ) -> tuple[bool, Any]:
        """Runs an INSERT with the rows of a builder."""

        def run(cursor: dbapi.Cursor) -> str:
            if row_builder is None:
                cursor.execute(sql)
            else:
                one = isinstance(row_builder, RowBuilder)
                rows = [row_builder] if one else row_builder.rows
                cursor.executemany(sql, [tuple(row.values) for row in rows])
            return ""

        return self._ran(run, db)

    def _cursor(self) -> dbapi.Cursor:
        if self.sdk is None:
            raise dbapi.InterfaceError("please init sdk first", code="08003")
        return self.sdk.cursor()

    def _ran(self, run: Callable[[dbapi.Cursor], Any], db: str | None = None) -> tuple[bool, Any]:
        try:
            cursor = self._cursor()
            cursor.connection.want(db)
            return True, run(cursor)
        except dbapi.Error as error:
            return False, str(error)
