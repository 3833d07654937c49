"""Awaited connections: the same answers, order, cancelled tasks, many at once."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import importlib.util
import subprocess
import sys

import pyarrow as pa
import pytest

import lockstep
from remote import new_database

WAIT_S = 60
"""Much longer than a cancelled call takes, much shorter than the work would."""

LONG = "SELECT count(*) AS n FROM t AS a JOIN t AS b ON a.k = b.k AND a.v + b.v < 0"
"""Would compare 3,600 million pairs of the rows of ``many_rows``, and holds none of them."""

FEATURES = """SELECT k, sum(v) OVER w AS total FROM t
    WINDOW w AS (PARTITION BY k ORDER BY v ROWS BETWEEN 100 PRECEDING AND CURRENT ROW)"""


@pytest.fixture(params=["embedded", "remote"])
def opening(request):
    """A function that opens an empty database: in the process, or on a server."""
    if request.param == "embedded":
        return lockstep.connect_async
    address = "/".join(new_database(request))
    return lambda: lockstep.connect_async(address)


def run(main) -> object:
    """Runs a program for so long at most."""

    async def limited() -> object:
        return await asyncio.wait_for(main(), WAIT_S)

    return asyncio.run(limited())


async def many_rows(db) -> None:
    await db.append("t", [{"k": 1, "v": v} for v in range(60_000)])


def test_the_same_calls_give_the_same_answers(opening):
    rows = [{"k": 1, "v": 10}, {"k": 2, "v": 20}, {"k": 1, "v": 30}]
    with lockstep.connect() as db:
        db.append("t", rows)
        db.execute(f"DEPLOY d AS {FEATURES}")
        expected = [
            db.sql("SELECT * FROM t").fetchall(),
            db.execute("SELECT v FROM t WHERE k = ?", [1]).fetchall(),
            db.request("d", {"k": 1, "v": 40}),
            db.request("d", [{"k": 1, "v": 40}, {"k": 3, "v": 40}]),
            db.prepare("d")({"k": 2, "v": 5}),
            (db.verify("d").values, db.verify("d").ok),
        ]

    async def main():
        async with opening() as db:
            assert await db.append("t", rows) == 3
            deployed = await db.execute(f"DEPLOY d AS {FEATURES}")
            assert deployed.message == "DEPLOY"
            prepared = await db.prepare("d")
            assert [name for name, _ in prepared.input] == ["k", "v"]
            assert [name for name, _ in prepared.output] == ["k", "total"]
            verified = await db.verify("d")
            return [
                await db.sql("SELECT * FROM t").fetchall(),
                await (await db.execute("SELECT v FROM t WHERE k = ?", [1])).fetchall(),
                await db.request("d", {"k": 1, "v": 40}),
                await db.request("d", [{"k": 1, "v": 40}, {"k": 3, "v": 40}]),
                await prepared({"k": 2, "v": 5}),
                (verified.values, verified.ok),
            ]

    assert run(main) == expected


def test_a_connection_is_awaited_or_entered_and_closed(tmp_path):
    async def main():
        db = await lockstep.connect_async(tmp_path / "d")
        await db.execute("CREATE TABLE t (a INT)")
        assert db.opened.rows == 0 and "d>" in repr(db)
        await db.close()
        await db.close()
        assert "closed" in repr(db)
        for call in (
            lambda: db.execute("SELECT 1"),
            lambda: db.append("t", [(1,)]),
            lambda: db.sql("SELECT a FROM t").fetchall(),
        ):
            with pytest.raises(lockstep.Error) as raised:
                await call()
            assert raised.value.code == "08003"
        async with await lockstep.connect_async(tmp_path / "d", read_only=True) as db:
            with pytest.raises(lockstep.Error) as raised:
                await db.append("t", [(1,)])
            assert raised.value.code == "25006"

    run(main)


def test_a_directory_that_cannot_be_opened_raises_where_it_is_awaited(tmp_path):
    (tmp_path / "file").write_text("no directory")

    async def main():
        opening = lockstep.connect_async(tmp_path / "file")
        with pytest.raises(lockstep.Error):
            await opening
        with pytest.raises(lockstep.Error):
            async with lockstep.connect_async(tmp_path / "file"):
                pass

    run(main)


def test_a_relation_knows_its_columns_when_it_was_awaited(opening):
    async def main():
        async with opening() as db:
            await db.append("t", [{"a": 1, "b": "x"}])
            lazy = db.sql("SELECT a, b FROM t")
            with pytest.raises(lockstep.Error, match="not yet known"):
                _ = lazy.columns
            checked = await lazy
            assert checked is lazy
            assert (lazy.columns, lazy.types) == (["a", "b"], ["BIGINT", "STRING"])
            assert lazy.rows_affected is None and lazy.message is None
            inserted = await db.execute("INSERT INTO t VALUES (2, 'y')")
            assert (inserted.rows_affected, inserted.message) == (1, "INSERT")

    run(main)


def test_rows_are_fetched_in_every_way(opening, capsys):
    async def main():
        async with opening() as db:
            await db.append("t", [{"a": value} for value in range(3000)])
            found = db.sql("SELECT a FROM t")
            assert await found.fetchone() == (0,)
            assert await found.fetchmany(2) == [(1,), (2,)]
            assert len(await found.fetchall()) == 2997
            assert [row async for row in found] == [(value,) for value in range(3000)]
            assert await found.count() == 3000
            assert (await found.df())["a"].sum() == (await found.pl())["a"].sum()
            assert (await found.arrow()).num_rows == 3000
            assert [row async for row in db.sql("SELECT a FROM t WHERE a < 0")] == []
            assert len([row async for row in db.sql("SELECT a FROM t WHERE a < 1024")]) == 1024
            await found.show(1)

    run(main)
    assert "(3000 rows)" in capsys.readouterr().out


def test_progress_is_told_in_the_event_loop():
    async def main():
        told = []
        async with lockstep.connect_async() as db:
            await many_rows(db)
            loop = asyncio.get_running_loop()

            def progress(fraction: float) -> None:
                assert asyncio.get_running_loop() is loop
                told.append(fraction)

            await db.sql(FEATURES).run(progress)
            await asyncio.sleep(0)
        return told

    told = run(main)
    assert all(0 <= fraction <= 1 for fraction in told)


def test_calls_run_in_the_order_in_which_they_were_made(opening):
    async def main():
        async with opening() as db:
            await db.execute("CREATE TABLE t (a INT)")
            inserts = [db.execute("INSERT INTO t VALUES (?)", [value]) for value in range(200)]
            await asyncio.gather(*inserts)
            return await db.sql("SELECT a FROM t").fetchall()

    assert run(main) == [(value,) for value in range(200)]


def test_many_requests_at_once_over_many_connections():
    async def main():
        async def one(number: int) -> list[int]:
            async with lockstep.connect_async() as db:
                await db.append("t", [{"k": number, "v": value} for value in range(100)])
                await db.execute(f"DEPLOY d AS {FEATURES}")
                requests = [db.request("d", {"k": number, "v": 100 + n}) for n in range(50)]
                return [answer["total"] for answer in await asyncio.gather(*requests)]

        return await asyncio.gather(*(one(number) for number in range(8)))

    stored = sum(range(100))
    assert run(main) == [[stored + 100 + n for n in range(50)]] * 8


def test_the_event_loop_goes_on_while_a_statement_runs(opening):
    async def main():
        async with opening() as db:
            await many_rows(db)
            statement = asyncio.create_task(db.execute(LONG))
            # Would not return before the statement, if that ran in the event loop.
            await asyncio.sleep(0.2)
            assert not statement.done()
            statement.cancel()
            with pytest.raises(asyncio.CancelledError):
                await statement

    run(main)


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.execute(LONG),
        lambda db: db.sql(LONG).fetchall(),
        lambda db: db.sql(LONG).run(),
        lambda db: db.request(LONG, {"k": 1, "v": 1}),
        lambda db: db.execute("SELECT count(*) AS n FROM t; " * 100_000),
    ],
)
def test_a_cancelled_task_ends_its_statement(opening, call):
    async def main():
        async with opening() as db:
            await many_rows(db)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(call(db), 0.3)
            # The thread is free, and what it runs next is not interrupted.
            assert await db.sql("SELECT count(*) AS n FROM t").fetchall() == [(60_000,)]

    run(main)


def test_ctrl_c_ends_the_program_and_its_statement():
    script = f"""
import asyncio, os, signal, lockstep

async def main():
    async with lockstep.connect_async() as db:
        await db.append("t", [{{"k": 1, "v": v}} for v in range(60_000)])
        asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGINT)
        await db.execute({LONG!r})

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=WAIT_S
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_a_cancelled_write_is_there_as_a_whole_or_not_at_all(opening):
    async def main():
        rows = [{"k": value, "v": value} for value in range(50_000)]
        async with opening() as db:
            await db.execute("CREATE TABLE w (k BIGINT, v BIGINT)")
            stored = 0
            for step in range(8):
                task = asyncio.create_task(db.append("w", rows))
                await asyncio.sleep(0.004 * step)
                task.cancel()
                ended = await asyncio.wait([task])
                assert ended[0] == {task}
                found = (await db.sql("SELECT count(*) AS n FROM w").fetchall())[0][0]
                assert found in (stored, stored + len(rows))
                stored = found

    run(main)


def test_a_call_that_waits_is_taken_out_of_the_queue(opening):
    async def main():
        async with opening() as db:
            await many_rows(db)
            await db.execute("CREATE TABLE w (a INT)")
            running = asyncio.create_task(db.execute(LONG))
            waiting = asyncio.create_task(db.execute("INSERT INTO w VALUES (1)"))
            await asyncio.sleep(0.1)
            waiting.cancel()
            running.cancel()
            for task in (running, waiting):
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await db.sql("SELECT * FROM w").count() == 0

    run(main)


def test_leaving_the_context_by_an_exception_closes_the_database(tmp_path):
    async def main():
        with pytest.raises(ZeroDivisionError):
            async with lockstep.connect_async(tmp_path / "d") as db:
                await db.execute("CREATE TABLE t (a INT)")
                _ = 1 / 0
        lockstep.connect(tmp_path / "d").close()

    run(main)


def test_errors_are_the_same_as_of_blocking_calls(opening):
    calls = ["SELEKT 1", "SELECT prise FROM t", "SELECT 'é',\n  cuont(1)"]
    with lockstep.connect() as db:
        db.execute("CREATE TABLE t (price INT)")
        expected = []
        for sql in calls:
            with pytest.raises(lockstep.Error) as raised:
                db.execute(sql)
            expected.append((str(raised.value), raised.value.position, raised.value.hint))
            assert "^" in str(raised.value)

    async def main():
        found = []
        async with opening() as db:
            await db.execute("CREATE TABLE t (price INT)")
            for sql in calls:
                for call in (
                    lambda sql=sql: db.execute(sql),
                    lambda sql=sql: db.sql(sql).fetchall(),
                    lambda sql=sql: db.prepare(sql),
                ):
                    with pytest.raises(lockstep.Error) as raised:
                        await call()
                    found.append((str(raised.value), raised.value.position, raised.value.hint))
        return found

    assert run(main) == [error for error in expected for _ in range(3)]


def test_warnings_are_warned(opening):
    async def main():
        async with opening() as db:
            await db.execute("CREATE TABLE t (k INT, v INT)")
            with pytest.warns(lockstep.LockstepWarning, match="is empty"):
                await db.execute(f"DEPLOY d AS {FEATURES}")

    run(main)


def test_the_connection_beneath_is_the_same_database():
    async def main():
        async with lockstep.connect_async(max_memory="1GB") as db:
            time = datetime.datetime(2020, 1, 1)
            db.blocking.append("t", [{"at": time}])
            assert await db.sql("SELECT at FROM t").fetchall() == [(time,)]

    run(main)


def test_a_query_reads_the_variables_of_its_caller():
    async def main():
        clicks = pa.table({"user": ["ann", "bob"]})
        async with lockstep.connect_async() as db:
            relation = db.sql("SELECT user FROM clicks")
            clicks = None
            rows = await relation.fetchall()
            with pytest.raises(lockstep.Error, match="clicks"):
                await db.sql("SELECT user FROM clicks")
            return rows, clicks

    assert asyncio.run(main()) == ([("ann",), ("bob",)], None)


def test_batches_come_while_the_query_runs(opening):
    async def main():
        async with opening() as db:
            rows = 300_000
            await db.append("t", pa.table({"a": range(rows)}))
            relation = db.sql("SELECT a FROM t")
            seen, beside = [], []
            async for batch in relation.batches(4_096):
                seen += batch["a"].to_pylist()
                if len(seen) == 8_192:
                    beside = await db.sql("SELECT count(*) AS n FROM t").fetchall()
            assert (seen == list(range(rows)), beside) == (True, [(rows,)])
            async with contextlib.aclosing(relation.batches(10)) as left_early:
                assert (await anext(left_early)).num_rows == 10
            with pytest.raises(StopAsyncIteration):
                await anext(left_early)
            shuffled = [batch async for batch in relation.batches(10, shuffle=100, seed=3)]
            assert sorted(a for batch in shuffled for a in batch["a"].to_pylist()) == seen
            assert shuffled[0]["a"].to_pylist() != seen[:10]
            with pytest.raises(lockstep.Error, match="must be at least 1") as refused:
                await anext(relation.batches(0))
            assert refused.value.code == "22023"

    run(main)


def test_a_split_has_the_parts_of_its_relation(opening):
    async def main():
        async with opening() as db:
            await db.append("t", [{"day": number, "v": number * 2} for number in range(10)])
            days = db.sql("SELECT day, v FROM t")
            parts = await days.split(by="day", train_until=4, valid_until=7, gap=1)
            found = [[day for day, _ in await part.fetchall()] for part in parts]
            assert found == [[0, 1, 2], [4, 5], [7, 8, 9]]
            assert parts[0].columns == ["day", "v"]
            with pytest.raises(lockstep.Error) as refused:
                await days.split(by="nothing", train_until=4)
            assert refused.value.code == "42703"

    run(main)


@pytest.mark.parametrize(("library", "method"), [("torch", "to_torch"), ("tensorflow", "to_tf")])
def test_training_data_is_made_as_by_a_relation(library, method):
    async def main():
        async with lockstep.connect_async() as db:
            rows = db.sql("SELECT 1.5 AS x, 2 AS y")
            if importlib.util.find_spec(library):
                items = await asyncio.to_thread(list, await getattr(rows, method)(256, label="y"))
                assert len(items) == 1
                return
            with pytest.raises(lockstep.Error, match=library) as refused:
                await getattr(rows, method)(256, label="y")
            assert refused.value.code == "58P01"

    run(main)


def test_a_subscription_waits_beside_other_calls_and_loses_no_rows(opening):
    async def main() -> None:
        async with opening() as db:
            await db.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
            later = await db.subscribe("t")
            rows = await db.subscribe("t", start="earliest")
            assert (await anext(rows)).to_pylist() == [{"a": 1}]
            # Whoever waits is cancelled; the rows that arrive then are those of the next call.
            for a in (2, 3):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(anext(rows), 0.05)
                await db.execute(f"INSERT INTO t VALUES ({a})")
                assert (await anext(rows)).to_pylist() == [{"a": a}]
            found = [row["a"] async for batch in _first(later, 2) for row in batch.to_pylist()]
            assert found == [2, 3]
            await rows.aclose()
            assert [batch async for batch in rows] == []
            with pytest.raises(lockstep.Error, match="does not exist"):
                await db.subscribe("missing")
            dropped = await db.subscribe("t")
            waiting = asyncio.ensure_future(anext(dropped))
            await db.execute("DROP TABLE t")
            with pytest.raises(lockstep.Error, match="was dropped"):
                await waiting

    run(main)


async def _first(subscription, rows: int):
    """Yields batches until there were so many rows."""
    async for batch in subscription:
        yield batch
        rows -= batch.num_rows
        if rows <= 0:
            return


def test_a_closed_connection_ends_its_subscriptions(opening):
    async def main() -> None:
        async with opening() as db:
            await db.execute("CREATE TABLE t (a INT)")
            rows = await db.subscribe("t")
            waiting = asyncio.ensure_future(anext(rows))
            await asyncio.sleep(0.05)
        with pytest.raises((asyncio.CancelledError, StopAsyncIteration)):
            await waiting
        assert [batch async for batch in rows] == []

    run(main)


def test_a_program_ends_although_a_subscription_waits():
    program = """
import asyncio, lockstep
async def main():
    db = await lockstep.connect_async()
    await db.execute("CREATE TABLE t (a INT)")
    rows = await db.subscribe("t")
    asyncio.ensure_future(anext(rows))
    await asyncio.sleep(0.05)
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=WAIT_S)
