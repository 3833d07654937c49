"""Makes a training set of M9 with Polars, and writes it to a Parquet file.

Takes one argument, a JSON object; says `filled`, waits for a line, works, says how long it took.
"""

import json
import pathlib
import sys
import time

import polars as pl


def windows(frame: pl.DataFrame, keys: list[str], frame_ms: int) -> pl.DataFrame:
    ordered = frame.sort("ts")
    result = None
    for number, key in enumerate(keys, start=1):
        rolled = ordered.rolling(
            index_column="ts", period=f"{frame_ms}i", closed="both", group_by=key
        ).agg(
            pl.col("id").last(),
            pl.col("v").count().alias(f"n{number}"),
            pl.col("v").sum().alias(f"total{number}"),
            pl.col("v").mean().alias(f"mean{number}"),
            pl.col("v").min().alias(f"least{number}"),
            pl.col("v").max().alias(f"greatest{number}"),
        )
        rolled = rolled.drop("ts", key)
        result = rolled if result is None else result.join(rolled, on="id")
    return result


def joins(frame: pl.DataFrame, first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    ordered = frame.sort("ts")
    found = ordered.join_asof(
        first.sort("ts").rename({"x": "first"}), on="ts", by_left="k1", by_right="k"
    ).join_asof(second.sort("ts").rename({"x": "second"}), on="ts", by_left="k2", by_right="k")
    return found.select("id", "first", "second")


def main() -> None:
    step = json.loads(sys.argv[1])
    source = pathlib.Path(step["source"])
    frame = pl.read_parquet(source / "t.parquet")
    others = []
    if step["shape"] == "joins":
        others = [pl.read_parquet(source / f"{name}.parquet") for name in ("r1", "r2")]
    print("filled", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    if others:
        result = joins(frame, *others)
    else:
        result = windows(frame, step["keys"], step["frame_ms"])
    result.write_parquet(step["target"], compression="snappy")
    print(json.dumps({"ms": (time.perf_counter() - begin) * 1e3}), flush=True)
    sys.stdin.readline()


main()
