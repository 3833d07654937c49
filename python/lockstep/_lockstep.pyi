"""The native half; see crates/python."""

from collections.abc import Callable, Mapping
from typing import Any

__version__: str

def main_with(args: list[str]) -> int: ...
def interrupt(thread: int) -> bool:
    """Cancels the call that runs on a thread other than the main one, if there is one."""

class Output:
    columns: list[tuple[str, str]]
    row_count: int
    rows_affected: int | None
    message: str | None
    warnings: list[str]

    def tuples(self, start: int, end: int) -> list[tuple[Any, ...]]: ...
    def pyarrow(self) -> Any: ...
    def arrow(self) -> Any: ...
    def draw(self, rows_max: int, width: int | None = None) -> str: ...
    def texts(self, rows_max: int) -> tuple[list[str], list[bool], list[list[str | None]]]: ...

class Relation:
    columns: list[tuple[str, str]]

    def collect(self, progress: Callable[[float], object] | None = None) -> Output: ...

class Prepared:
    """A compiled request: answers one request row after another. May be shared by threads."""

    input: list[tuple[str, str]]
    """Names and types of the request row's columns."""
    required: list[str]
    """The names of those on which an answer depends; the others may be left out."""
    output: list[tuple[str, str]]
    """Names and types of the answer's columns."""

    def __call__(self, row: Mapping[str, Any] | tuple[Any, ...]) -> dict[str, Any] | None: ...

class Session:
    def __init__(
        self,
        path: str | None = None,
        read_only: bool = False,
        progress: Callable[[int, int, int | None], object] | None = None,
    ) -> None: ...
    @staticmethod
    def connect(address: str, tls: bool | None = None, ca: str | None = None) -> Session: ...
    def close(self) -> None: ...
    def check_open(self) -> None: ...
    def opened(self) -> dict[str, Any] | None: ...
    def execute(self, sql: str, parameters: list[Any]) -> Output: ...
    def query(
        self,
        sql: str,
        parameters: list[Any],
        find: Callable[[str], Any] | None = None,
    ) -> Relation: ...
    def append(
        self, table: str, data: Any, create: str, durability: str | None = None
    ) -> Output: ...
    def append_rows(
        self, table: str, rows: list[Any], create: str, durability: str | None = None
    ) -> Output: ...
    def append_tables(
        self, tables: list[tuple[str, Any]], durability: str | None = None
    ) -> Output: ...
    def prepare(self, target: str) -> Prepared: ...
    def deployment(self, name: str) -> dict[str, Any]: ...
    def columns_of_table(self, table: str) -> list[tuple[str, str]] | None: ...
    def request(self, target: str, data: Any) -> Output: ...
    def verify(
        self,
        deployment: str,
        sample: int | None = None,
        progress: Callable[[float], object] | None = None,
    ) -> dict[str, Any]: ...
