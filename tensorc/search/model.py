"""The cost model of the evolutionary search: boosted trees on the features of sentences.

As Ansor's (Zheng et al., OSDI 2020, 5.2): what is predicted is a program's throughput relative to
the best of its task, 0 for one that failed, and fast programs weigh more. Ansor uses XGBoost with
trees of depth 10 and a learning rate of 0.2; LightGBM's trees grow by leaves, 31 of them here.
Fitting the logarithm instead ranks all programs as well, but the fast ones worse.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc.errors import ArgumentError
from tensorc.search.features import Features

ROUNDS = 100
LEAST_WEIGHT = 0.05

PARAMETERS = {
    "objective": "regression",
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_data_in_leaf": 3,
    "min_sum_hessian_in_leaf": 1e-3,
    "feature_fraction": 0.7,
    "seed": 0,
    # The same trees for the same data, on every machine.
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}


@dataclass(frozen=True)
class Group:
    """What is known of one task: features (programs, features), and seconds of each program,
    infinite for those that failed."""

    features: Features
    seconds: NDArray[np.float64]

    @property
    def throughput(self) -> NDArray[np.float64]:
        """By that of the task's best program: from 0 to 1."""
        known = self.seconds[np.isfinite(self.seconds)]
        if not len(known):
            return np.zeros(len(self.seconds))
        return float(known.min()) / self.seconds


def lightgbm() -> Any:
    """The library. Raises ArgumentError where it is not installed."""
    try:
        import lightgbm as found
    except ImportError as error:
        reason = f"{error.name} is not installed, which the cost model needs"
        raise ArgumentError("tuner", f"{reason}: pip install 'tensorc[search]'") from None
    return found


class CostModel:
    """Boosted trees, fitted anew to all that is known.

    Raises:
        ArgumentError: LightGBM is not installed.
    """

    def __init__(self) -> None:
        self._library = lightgbm()
        self._trees: Any = None

    @property
    def fitted(self) -> bool:
        return self._trees is not None

    def fit(self, groups: Iterable[Group]) -> None:
        """Learn from groups of programs; nothing is learned from none."""
        known = [group for group in groups if len(group.seconds)]
        if not known:
            return
        wanted = np.concatenate([group.throughput for group in known])
        data = self._library.Dataset(
            np.concatenate([group.features for group in known]),
            label=wanted,
            weight=np.maximum(wanted, LEAST_WEIGHT),
            params={"min_data_in_bin": 1, "verbosity": -1, "feature_pre_filter": False},
        )
        self._trees = self._library.train(PARAMETERS, data, num_boost_round=ROUNDS)

    def predict(self, features: Features) -> NDArray[np.float64]:
        """The throughput of each program by that of the best known, higher is faster; 0 for all
        while nothing was learned."""
        if self._trees is None or not len(features):
            return np.zeros(len(features))
        return np.asarray(self._trees.predict(features), np.float64)
