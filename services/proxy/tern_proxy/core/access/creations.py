"""Rate limit of a principal's new topics and groups at this proxy. Pure.

A token bucket for each principal prevents a loop from filling a broker group. Existing objects may
be declared without limit: only a creation takes a token. After its burst a principal continues at
`per_s`, and the refusal has the time to wait. Reference: Kafka's controller_mutation_rate, which is
also by user and per broker.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tern_wire.errors import QuotaExceeded
from tern_wire.limits_namespaces import CREATORS_KEPT_MAX

UNIT = "new topics and groups/s"


@dataclass(slots=True)
class Creation:
    """One request that may create something.

    *is_new*: whether it did; an unknown outcome counts as a creation.
    """

    is_new: bool = True


class Creations:
    """Token buckets by owner. *per_s* 0: without a limit. *now_ms*: monotonic.

    Owner: the event loop.
    """

    def __init__(self, *, per_s: int, burst: int, now_ms: Callable[[], int]) -> None:
        self._per_s, self._burst, self._now_ms = per_s, max(1, burst), now_ms
        # Remaining tokens of each owner and their time (ms), most recent last. A forgotten owner
        # has a full bucket.
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    @contextmanager
    def one(self, owner: str, *, is_free: bool = False) -> Iterator[Creation]:
        """Guard one request of *owner*, which sets `is_new`.

        Raise QuotaExceeded with `retry_after_ms` without a token. *is_free*: no token is taken,
        because the object is known to exist or the mesh itself creates it.
        """
        creation = Creation()
        if is_free or not self._per_s:
            yield creation
            return
        self._take(owner)
        yield creation
        if not creation.is_new:
            self._put(owner, self._left_of(owner) + 1)

    def _take(self, owner: str) -> None:
        left = self._left_of(owner)
        if left < 1:
            retry_after_ms = int((1 - left) * 1_000 / self._per_s) + 1
            raise QuotaExceeded(limit=self._per_s, unit=UNIT, retry_after_ms=retry_after_ms)
        self._put(owner, left - 1)

    def _left_of(self, owner: str) -> float:
        left, since_ms = self._left.get(owner, (float(self._burst), 0))
        return min(float(self._burst), left + max(0, self._now_ms() - since_ms) * self._per_s / 1_000)

    def _put(self, owner: str, left: float) -> None:
        if left >= self._burst:
            self._left.pop(owner, None)
            return
        self._left[owner] = min(left, float(self._burst)), self._now_ms()
        self._left.move_to_end(owner)
        if len(self._left) > CREATORS_KEPT_MAX:
            self._left.popitem(last=False)
