"""A served directory with two tables and a deployment, for clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SETUP = """
CREATE TABLE orders (user STRING NOT NULL, price DOUBLE, ts TIMESTAMP, ok BOOL, day DATE,
    INDEX(KEY=user, TS=ts));
INSERT INTO orders VALUES ('ann', 1.5, '2024-01-01 11:30:00', true, '2020-01-01');
CREATE TABLE numbers (number INT);
INSERT INTO numbers VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10);
DEPLOY total AS SELECT user, sum(price) OVER w AS spent FROM orders WINDOW w AS
    (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW);
"""


@dataclass(frozen=True)
class ServedDirectory:
    """The addresses on which a directory is served, as `host:port`."""

    http: str
    postgres: str
    flight: str

    @property
    def postgres_port(self) -> int:
        return int(self.postgres.rsplit(":", 1)[1])


@contextmanager
def serve(directory: Path) -> Iterator[ServedDirectory]:
    """Makes a directory and serves it to everybody on this machine."""
    start = [sys.executable, "-m", "lockstep"]
    subprocess.run([*start, "-c", SETUP, str(directory)], check=True, timeout=60)
    command = [*start, "serve", str(directory), "--set", "server.authentication=none"]
    for protocol in ("--http", "--postgres", "--flight"):
        command += [protocol, "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # "listening on ADDRESS", or "listening on ADDRESS for PostgreSQL's protocol".
        lines = [process.stdout.readline() for _ in range(3)]
        try:
            yield ServedDirectory(
                http=next(line.split()[2] for line in lines if " for " not in line),
                postgres=next(line.split()[2] for line in lines if " for PostgreSQL" in line),
                flight=next(line.split()[2] for line in lines if " for Flight SQL" in line),
            )
        finally:
            process.terminate()
