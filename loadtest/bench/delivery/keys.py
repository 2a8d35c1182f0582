"""`python -m loadtest.bench.delivery.keys [KEYS]`: memory and speed of idempotency keys.

The default is 20 million keys in 80 files. Measured are: memory of this process with all tables;
look-ups of new keys, in batches, as a leader does for each send; the cost of keys in apply; and
known keys, each of which costs a read. About a minute and 700 MB of disk below `.tern/bench/`,
which is removed.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loadtest.bench.store.figures import scratch
from tern_broker.core.sending.idempotency import KeyTable
from tern_store.keys.sent_keys import SentKeys
from tern_wire.limits import IDEMPOTENCY_KEYS_MAX, IDEMPOTENCY_TABLE_KEYS_MAX
from tern_wire.link.key_rows import split_keys

_ENTRY_KEYS = 4_096
_LOOK_UPS = 200_000


def _resident_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _us_each(count: int, action: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    action()
    return (time.perf_counter() - began_s) * 1e6 / count


def _fill(state: KeyTable, sent_keys: SentKeys, rng: np.random.Generator, count: int) -> tuple[float, list[bytes]]:
    """Return the seconds of apply for *count* keys, and some of the keys."""
    spent_s, kept = 0.0, []
    zeros = np.zeros(_ENTRY_KEYS, np.uint64)
    for number in range(-(-count // _ENTRY_KEYS)):
        keys = rng.bytes(16 * _ENTRY_KEYS)
        began_s = time.perf_counter()
        state.find(*split_keys(keys))
        state.add(keys, zeros, zeros, zeros, now_ms=number)
        sealed = state.seal_if_due(number)
        spent_s += time.perf_counter() - began_s
        if sealed is not None:
            sent_keys.add(sealed.facts.number, sealed.table, number).run()
            sent_keys.settle()
            kept.append(keys[: 16 * 64])
    return spent_s, kept


def _new_keys(sent_keys: SentKeys, rng: np.random.Generator, batch: int) -> float:
    batches = [rng.bytes(16 * batch) for _ in range(max(1, min(_LOOK_UPS, 2_000 * batch) // batch))]
    return _us_each(batch * len(batches), lambda: [sent_keys.find(keys) for keys in batches])


def main() -> int:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else IDEMPOTENCY_KEYS_MAX
    rng = np.random.default_rng(1)
    probe: npt.NDArray[np.uint64] = rng.integers(0, 9, 9, dtype=np.uint64)
    with scratch(Path(".tern/bench/keys")) as place:
        state, sent_keys = KeyTable(), SentKeys.open(place, table_keys_max=IDEMPOTENCY_TABLE_KEYS_MAX)
        state.add(bytes(16 * 9), probe, probe, probe, 0)
        before_mib = _resident_mib()
        spent_s, kept = _fill(state, sent_keys, rng, count)
        print(f"keys              {len(state):>12,} in {len(sent_keys)} files and the youngest table")
        print(f"memory            {_resident_mib() - before_mib:>12.1f} MiB")
        print(f"apply             {spent_s * 1e6 / count:>12.2f} us a key")
        for batch in (1, 16, 256, 4_096):
            print(f"new, batch {batch:>5}  {_new_keys(sent_keys, rng, batch):>12.2f} us a key")
        known = b"".join(kept)
        print(f"known             {_us_each(len(known) // 16, lambda: sent_keys.find(known)):>12.2f} us a key")
        sent_keys.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
