"""Tests of views: what they read, and what they refuse."""

import pytest

import lockstep


@pytest.fixture
def db():
    connection = lockstep.connect()
    connection.append("t", [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    return connection


def test_a_view_is_used_like_a_table(db):
    db.execute("CREATE VIEW large AS SELECT k, v * 10 AS tens FROM t WHERE v > 1")
    assert db.sql("SELECT * FROM large").fetchall() == [("b", 20)]
    db.execute("DEPLOY d AS SELECT k, tens + 1 AS more FROM large")
    assert db.request("d", {"k": "c", "v": 3}) == {"k": "c", "more": 31}
    assert db.verify("d")
    assert [row[0] for row in db.sql("SHOW VIEWS").fetchall()] == ["large"]


def test_a_view_is_there_again_when_its_directory_is_opened(tmp_path):
    folder = tmp_path / "views.lockstep"
    with lockstep.connect(folder) as db:
        db.append("t", [{"k": "a", "v": 1}])
        db.execute("CREATE VIEW one AS SELECT k FROM t; CREATE VIEW two AS SELECT k FROM one")
        db.execute("CHECKPOINT; CREATE VIEW three AS SELECT k FROM two")
    with lockstep.connect(folder) as db:
        assert db.sql("SELECT * FROM three").fetchall() == [("a",)]
        with pytest.raises(lockstep.Error, match="view `two` is read by `three`"):
            db.execute("DROP VIEW two")


def test_a_view_takes_no_parameters(db):
    with pytest.raises(lockstep.Error, match="a view cannot have parameters") as refused:
        db.execute("CREATE VIEW v AS SELECT k FROM t WHERE v > ?", [1])
    assert refused.value.code == "0A000"


def test_a_view_of_files(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("k,v\na,1\nb,2\n")
    folder = tmp_path / "views.lockstep"
    with lockstep.connect(folder) as db:
        db.execute(f"CREATE VIEW v AS SELECT k, v * 2 AS twice FROM '{path}'")
        db.execute(f"CREATE EXTERNAL TABLE e STORED AS CSV LOCATION '{path}'")
        assert db.sql("SELECT * FROM v").fetchall() == [("a", 2), ("b", 4)]
    path.unlink()
    with lockstep.connect(folder) as db:
        with pytest.raises(lockstep.Error, match="does not exist") as error:
            db.sql("SELECT * FROM e")
        assert "The error is in the query of view `e`." in error.value.detail
        path.write_text("k,v\nc,3\n")
        assert db.sql("SELECT * FROM v").fetchall() == [("c", 6)]
        assert db.sql("SELECT * FROM e").fetchall() == [("c", 3)]
