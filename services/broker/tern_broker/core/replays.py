"""Which leases a receive with an attempt id got, so that the same request again gets the same messages and handles.

Law: this is an index over what the leases say themselves (`Lease.token`), made again when a state is loaded; what it says is checked
against the leases whenever it is used, so an entry that is out of date is harmless.
"""

from collections.abc import Mapping, Sequence

from tern_broker.core.holdings import Lease
from tern_broker.core.leases import Delivery

# An attempt id's hash.
TOKEN_SIZE_BYTES = 16
_SWEEP_AT_LEAST = 1_024
Deliveries = Mapping[tuple[int, int], Sequence[Delivery | None]]


class Replays:
    """By group, topic and token. Owner: Leasing."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._leases: dict[tuple[int, int, bytes], list[tuple[int, int]]] = {}
        self._sweep_at = _SWEEP_AT_LEAST

    def add(self, group_id: int, topic_id: int, queue: int, lease: Lease) -> None:
        """*lease* was given to the receive that its token names."""
        if len(self._leases) >= self._sweep_at:
            # Twice what is alive at most: each lease pays for its own removal.
            self._leases = {key: live for key, found in self._leases.items() if (live := self._alive(key, found))}
            self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._leases))
        self._leases.setdefault((group_id, topic_id, lease.token), []).append((queue, lease.lease_id))

    def find(self, group_id: int, topic_id: int, token: bytes) -> list[tuple[int, Lease]]:
        """(queue, lease) of what the receive got and still holds, in the order in which it got them."""
        key = (group_id, topic_id, token)
        row = self._deliveries.get((group_id, topic_id), ())
        found: list[tuple[int, Lease]] = []
        for queue, lease_id in self._alive(key, self._leases.get(key, [])):
            delivery = row[queue]
            assert delivery is not None
            found.append((queue, delivery.leases[lease_id]))
        return found

    def _alive(self, key: tuple[int, int, bytes], found: list[tuple[int, int]]) -> list[tuple[int, int]]:
        row = self._deliveries.get(key[:2], ())
        alive = []
        for queue, lease_id in found:
            delivery = row[queue] if queue < len(row) else None
            lease = delivery.leases.get(lease_id) if delivery is not None else None
            if lease is not None and lease.token == key[2]:
                alive.append((queue, lease_id))
        return alive
