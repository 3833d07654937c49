"""Makes a training set of M9 with Spark in this process's Java, and writes it to Parquet files.

Takes one argument, a JSON object; says `filled`, waits for a line, works, says how long it took.
"""

import json
import pathlib
import sys
import time

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f


def main() -> None:
    step = json.loads(sys.argv[1])
    source = pathlib.Path(step["source"])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "6g")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.parquet(str(source / "t.parquet")).cache()
    frame.count()
    print("filled", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    columns = [f.col("id")]
    for number, key in enumerate(step["keys"], start=1):
        window = Window.partitionBy(key).orderBy("ts").rangeBetween(-step["frame_ms"], 0)
        names = ("n", "total", "mean", "least", "greatest")
        functions = (f.count, f.sum, f.avg, f.min, f.max)
        for name, function in zip(names, functions, strict=True):
            columns.append(function("v").over(window).alias(f"{name}{number}"))
    frame.select(*columns).write.parquet(step["target"], compression="snappy")
    print(json.dumps({"ms": (time.perf_counter() - begin) * 1e3}), flush=True)
    sys.stdin.readline()
    spark.stop()


main()
