"""Bootstrap intervals over tasks, for other scripts."""

import numpy as np

RESAMPLES = 10_000
SEED = 0


def resamples(count: int) -> np.ndarray:
    """Indices of the tasks in each resample; the shape is (RESAMPLES, count)."""
    return np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count))


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % percentile interval of the resampled values."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)
