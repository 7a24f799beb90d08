"""Intervals by the bootstrap over tasks, for the scripts beside this."""

import numpy as np

RESAMPLES = 10_000
SEED = 0


def draws(count: int) -> np.ndarray:
    """Tasks of each resample, as many as there are: (RESAMPLES, count)."""
    return np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count))


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % percentile interval of what the resamples gave."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)
