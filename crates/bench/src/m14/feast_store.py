"""Makes a Feast repository with ready-made features in its SQLite online store.

``feast_store.py FOLDER ENTITIES FEATURES``: features ``f0`` … of the view ``features`` for the
entities 0, 1, …; ``feast serve`` then serves the folder.
"""

import datetime
import pathlib
import sys

import pandas
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Float64

CONFIGURATION = """\
project: features
provider: local
registry: registry.db
online_store:
    type: sqlite
    path: online.db
offline_store:
    type: dask
entity_key_serialization_version: 3
"""


def main(folder: pathlib.Path, entities: int, features: int) -> None:
    """Writes the repository."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "feature_store.yaml").write_text(CONFIGURATION)
    now = datetime.datetime.now(datetime.UTC)
    names = [f"f{number}" for number in range(features)]
    rows = pandas.DataFrame(
        {name: [entity + number / 4 for entity in range(entities)] for number, name in enumerate(names)}
    )
    rows["k"] = range(entities)
    rows["ts"] = now
    file = folder / "features.parquet"
    rows.to_parquet(file)
    entity = Entity(name="k", join_keys=["k"], value_type=ValueType.INT64)
    view = FeatureView(
        name="features",
        entities=[entity],
        ttl=datetime.timedelta(0),
        schema=[Field(name=name, dtype=Float64) for name in names],
        source=FileSource(path=str(file), timestamp_field="ts"),
        online=True,
    )
    store = FeatureStore(repo_path=str(folder))
    store.apply([entity, view])
    store.write_to_online_store("features", rows)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
