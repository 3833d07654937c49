"""CSV and JSON as other programs write and read them: NULL, encodings, compression, damage."""

from __future__ import annotations

import csv
import datetime
import gzip
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest

import lockstep

ROWS = [(1, "x", 0.5), (2, None, None), (3, "", 1.0), (4, "null", 2.0), (5, 'a,\n"b"', 3.0)]


@pytest.fixture
def db():
    """An embedded connection: the files are those of this process."""
    with lockstep.connect() as connection:
        yield connection


def refusal(db, sql: str) -> str:
    """The message of the error that a statement ends with, in its first line."""
    with pytest.raises(lockstep.Error) as caught:
        db.execute(sql)
    assert not caught.value.code.startswith("XX"), caught.value
    return str(caught.value).splitlines()[0]


def test_null_of_other_writers_is_null(db, tmp_path):
    """They write nothing for NULL, and quote the empty text; pandas writes nothing for both."""
    frame = pd.DataFrame(ROWS, columns=["i", "t", "v"]).astype({"t": object})  # noqa: F841
    files = {name: tmp_path / f"{name}.csv" for name in ("duckdb", "polars", "python")}
    duckdb.sql("SELECT * FROM frame").write_csv(str(files["duckdb"]))
    pl.DataFrame(ROWS, schema=["i", "t", "v"], orient="row").write_csv(files["polars"])
    with files["python"].open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(["i", "t", "v"])
        writer.writerows([row[0], "" if row[1] is None else row[1], row[2]] for row in ROWS)
    for name, path in files.items():
        # These do not quote a text that is the word of NULL here.
        no_word = f"read_csv('{path}', null_value = '')"
        expected = [(i, "" if t is None and name == "python" else t, v) for i, t, v in ROWS]
        # A quoted empty text, as this writer has for NULL, makes a column one of texts.
        assert db.sql(f"SELECT i, t, double(v) AS v FROM {no_word}").fetchall() == expected, name
    db.append("n", files["duckdb"])
    nulls = [(2,), (4,)]
    assert db.sql("SELECT i FROM n WHERE t IS NULL ORDER BY i").fetchall() == nulls


def test_what_is_written_is_the_same_to_other_readers(db, tmp_path):
    db.append("rows", pd.DataFrame(ROWS, columns=["i", "t", "v"]).convert_dtypes())
    path = tmp_path / "rows.csv"
    db.sql("SELECT * FROM rows ORDER BY i").write(path)
    assert path.read_text() == 'i,t,v\n1,x,0.5\n2,,\n3,"",1\n4,"null",2\n5,"a,\n""b""",3\n'
    read = f"SELECT * FROM read_csv('{path}', allow_quoted_nulls = false)"
    assert duckdb.sql(read).fetchall() == ROWS
    assert db.sql(f"SELECT i, t, double(v) AS v FROM '{path}'").fetchall() == ROWS


def test_a_column_of_texts_is_read_back(db, tmp_path):
    db.execute("CREATE TABLE texts (t STRING)")
    rows = [("x",), ("",), (None,), ("null",), (" ",), (None,)]
    db.append("texts", rows)
    for options in ({}, {"null_value": ""}, {"null_value": "x"}, {"header": False}, {"quote": "'"}):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.csv"
        db.sql("SELECT t FROM texts").write(path, **options)
        given = "".join(f", {name} = {value!r}" for name, value in options.items())
        found = db.sql(f"SELECT * FROM read_csv('{path}'{given})").fetchall()
        assert found == rows, options


def test_dates_and_times_of_every_year_are_read_back(db, tmp_path):
    days = [datetime.date(1, 1, 1), datetime.date(1850, 6, 1), datetime.date(9999, 12, 31)]
    times = [datetime.datetime.combine(day, datetime.time(1, 2, 3, 4000)) for day in days]
    db.execute("CREATE TABLE old (d DATE, t TIMESTAMP)")
    rows = list(zip(days, times, strict=True))
    db.append("old", rows)
    texts = "SELECT string(d) AS d, string(t) AS t FROM old"
    read = db.sql(f"SELECT date(d) AS d, timestamp(t) AS t FROM ({texts}) AS texts")
    assert read.fetchall() == db.sql("SELECT d, t FROM old").fetchall()
    for end in ("csv", "json"):
        path = tmp_path / f"old.{end}"
        db.execute("SET time_zone = 'Europe/Madrid'")
        db.sql("SELECT d, t FROM old").write(path)
        db.execute("SET time_zone = 'Asia/Tokyo'")
        assert db.sql(f"SELECT d, t FROM '{path}'").fetchall() == rows


def test_an_encoding_is_named(db, tmp_path):
    wide = tmp_path / "wide.csv"
    wide.write_bytes("a,b\n1,2\n".encode("utf-16"))
    expected = f"file `{wide}` is encoded in UTF-16, expected UTF-8"
    assert expected in refusal(db, f"SELECT * FROM '{wide}'")
    latin = tmp_path / "latin.csv"
    latin.write_bytes("größe,id\n5,1\n".encode("latin-1"))
    expected = f"file `{latin}`, line 1: the name of column 1 is not valid UTF-8"
    assert expected in refusal(db, f"SELECT * FROM '{latin}'")


@pytest.mark.parametrize("name", ["S.CSV.GZ", "s.csv", "s.json.csv"])
def test_a_compressed_file_is_known_by_its_bytes(db, tmp_path, name):
    path = tmp_path / name
    for number in range(40):
        path.write_bytes(gzip.compress(f"a,b\n{number},2\n".encode(), mtime=1_700_000_000 + number))
        assert db.sql(f"SELECT * FROM read_csv('{path}')").fetchall() == [(number, 2)]


def test_a_record_without_an_end_is_refused(db, tmp_path: Path):
    path = tmp_path / "endless.csv.gz"
    path.write_bytes(gzip.compress(b'a\n1\n"' + b"x" * (257 << 20), compresslevel=1))
    expected = f"file `{path}`, line 3: record exceeds the limit of 256 MiB"
    assert expected in refusal(db, f"SELECT * FROM '{path}'")
