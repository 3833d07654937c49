"""Rows as a dataset of TensorFlow."""

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
    """Makes a dataset of the batches of each call; ``types`` are those of the columns."""
    for name, of in types.items():
        if of not in _TYPES:
            raise Error(f"column `{name}` is {of}, for which there is no tensor", code="42804")
    specs = {name: tensorflow.TensorSpec((None,), _TYPES[of]) for name, of in types.items()}

    def elements() -> Iterator[Any]:
        for batch in batches():
            columns = arrays_of(batch)
            for name, of in types.items():
                if of == "STRING" and None in columns[name]:
                    raise Error(
                        f"column `{name}` has NULLs, for which a tensor of texts has no value",
                        code="22004",
                        kind="fix data",
                        hint=f"Select ifnull({name}, '').",
                    )
            yield parts(columns, label)

    return tensorflow.data.Dataset.from_generator(elements, output_signature=parts(specs, label))
