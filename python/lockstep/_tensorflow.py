"""TensorFlow dataset of the rows of a relation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow

from ._error import Error
from ._tensor import arrays_of, parts

_TYPES = {
    "BOOL": tensorflow.bool,
    "SMALLINT": tensorflow.int16,
    "INT": tensorflow.int32,
    "BIGINT": tensorflow.int64,
    "FLOAT": tensorflow.float32,
    "DOUBLE": tensorflow.float64,
    "STRING": tensorflow.string,
    "TIMESTAMP": tensorflow.int64,
    "DATE": tensorflow.int64,
}


def dataset(
    batches: Callable[[], Iterator[Any]], types: dict[str, str], label: str | None
) -> tensorflow.data.Dataset:
    """Returns a dataset of the batches from each call of ``batches``.

    ``types`` are the SQL types of the columns.
    """
    for name, of in types.items():
        if of not in _TYPES:
            raise Error(
                f"column `{name}` of type {of} cannot be converted to a tensor", code="42804"
            )
    specs = {name: tensorflow.TensorSpec((None,), _TYPES[of]) for name, of in types.items()}

    def elements() -> Iterator[Any]:
        for batch in batches():
            columns = arrays_of(batch)
            for name, of in types.items():
                if of == "STRING" and None in columns[name]:
                    raise Error(
                        f"column `{name}` contains NULL, which a string tensor cannot represent",
                        code="22004",
                        kind="fix data",
                        hint=f"Select ifnull({name}, '').",
                    )
            yield parts(columns, label)

    return tensorflow.data.Dataset.from_generator(elements, output_signature=parts(specs, label))
