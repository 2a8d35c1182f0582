"""Histograms of latencies that tasks return and the driver adds up.

Up to 1,024 ms every millisecond has a bucket of its own. Above, a bucket is 1/64 of a power of two
wide, so a percentile is at most 1.6 % too high.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

EXACT_MS = 1_024
_STEPS = 64
_EXACT_BITS = EXACT_MS.bit_length() - 1


def bucket_of(latencies_ms: Ints) -> Ints:
    """Return the bucket of each latency; negative ones (clocks differ) count as 0."""
    values = np.maximum(latencies_ms, 0)
    bits = np.floor(np.log2(np.maximum(values, 1))).astype(np.int64)
    far = EXACT_MS + (bits - _EXACT_BITS) * _STEPS + ((values - (1 << bits)) >> np.maximum(bits - 6, 0))
    return np.where(values < EXACT_MS, values, far)


def bucket_top_ms(bucket: int) -> int:
    """Return the largest latency of a bucket."""
    if bucket < EXACT_MS:
        return bucket
    power, step = divmod(bucket - EXACT_MS, _STEPS)
    bits = power + _EXACT_BITS
    return (1 << bits) + ((step + 1) << (bits - 6)) - 1


def percentile_ms(counts: dict[int, int], share: float) -> int:
    """Return the latency that *share* of the messages do not exceed (nearest rank)."""
    rank = max(1, -int(-sum(counts.values()) * share // 1))
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= rank:
            return bucket_top_ms(bucket)
    return 0
