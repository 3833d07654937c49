"""Model of the demonstration: gradient-boosted trees on a table of features."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

TREES = 100
LEARNERS = f"{TREES} gradient-boosted trees"


class DelayModel:
    """Predicts the delay; trained on the rows of a feature table that ``learn`` selects."""

    def __init__(
        self,
        features: pa.Table,
        delay: pd.Series,
        learn: np.ndarray,
        without: list[str] | None = None,
    ) -> None:
        self._columns = [name for name in features.column_names if name not in (without or [])]
        self._categories = {
            name: sorted(features[name].drop_null().unique().to_pylist())
            for name in self._columns
            if pa.types.is_string(features[name].type)
        }
        self._trees = HistGradientBoostingRegressor(
            loss="absolute_error",
            max_iter=TREES,
            learning_rate=0.15,
            max_leaf_nodes=48,
            early_stopping=False,
            categorical_features=[name in self._categories for name in self._columns],
            random_state=2013,
        )
        examples = self._matrix(features.filter(learn))
        # One thread: the threads of the library busy-wait, which is slow on a loaded machine.
        with threadpool_limits(1, "openmp"):
            self._trees.fit(examples, delay[learn].to_numpy(dtype=float))

    def error(self, features: pa.Table, delay: pd.Series) -> float:
        """Returns the mean absolute error of the predictions for these rows, in minutes."""
        with threadpool_limits(1, "openmp"):
            predicted = self._trees.predict(self._matrix(features))
        return float(np.mean(np.abs(predicted - delay.to_numpy(dtype=float))))

    def _matrix(self, features: pa.Table) -> np.ndarray:
        """Converts numbers to doubles and strings to category indexes; NULL becomes NaN."""
        columns = []
        for name in self._columns:
            if name in self._categories:
                codes = pd.Categorical(features[name].to_pylist(), self._categories[name]).codes
                columns.append(np.where(codes < 0, np.nan, codes))
            else:
                columns.append(features[name].cast(pa.float64()).to_pandas().to_numpy())
        return np.column_stack(columns)
