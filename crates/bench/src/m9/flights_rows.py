"""Writes the rows of the demonstration's tables, a number of times one after the other in time.

Takes a folder and the number of copies. The tables are Parquet files, the register of aircraft is as
its package has it, and the file `count` has the number of flights.
"""

import datetime
import pathlib
import shutil
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from lockstep.demo import flights_data

# A year of whole weeks, so that a copy has the same days of the week.
SHIFT = datetime.timedelta(days=364)


def main(folder: pathlib.Path, copies: int) -> None:
    data = flights_data.read()
    for name in ("flights", "departures", "arrivals", "weather"):
        table = pa.Table.from_pandas(getattr(data, name), preserve_index=False)
        at = table.schema.get_field_index("ts")
        table = table.set_column(at, "ts", table["ts"].cast(pa.timestamp("ms")))
        with pq.ParquetWriter(folder / f"{name}.parquet", table.schema) as writer:
            for copy in range(copies):
                shift = pa.scalar(SHIFT * copy, pa.duration("ms"))
                part = table.set_column(at, "ts", pc.add(table["ts"], shift))
                if "flight_id" in part.column_names:
                    ids = pc.add(part["flight_id"], len(data.flights) * copy)
                    part = part.set_column(0, "flight_id", ids)
                writer.write_table(part)
    shutil.copy(data.planes_csv, folder / "planes.csv")
    (folder / "count").write_text(str(len(data.flights) * copies))


main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
