"""A scripted proxy that leases its messages and counts attempts as a broker does: what was leased, given back, acked, and what counts."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tern_wire.errors import InvalidField
from tests.support.client.scripted_proxy import SILENT, Asked, Reply, packed, refused, said

FAR_MS = 4_102_444_800_000


class LeasingProxy:
    """*count* messages `m0`, `m1` ... of topic t for group g. Owner: the scripted proxy that it answers for.

    *knows_release* False: of a release that has no such action. A receive that finds nothing waits for ever, if it may wait.
    """

    def __init__(
        self, count: int, *, knows_release: bool = True, attempts_before: Mapping[int, int] | None = None
    ) -> None:
        self._free = list(range(count))
        self._leases: dict[str, int] = {}
        self._knows_release = knows_release
        self.attempts = Counter(attempts_before or {})
        self.acked: set[int] = set()
        self.released: list[int] = []
        self.shortened: list[int] = []
        self.receives: list[int] = []

    @property
    def leased(self) -> set[int]:
        """What somebody holds."""
        return set(self._leases.values())

    @property
    def counted(self) -> dict[str, int]:
        """Attempts that count once all leases have ended, by message; those without any are left out."""
        return {f"m{number}": count for number, count in sorted(self.attempts.items()) if count}

    def expire(self) -> None:
        """All leases end."""
        self._free = sorted({*self._free, *self._leases.values()})
        self._leases.clear()

    def answer(self, asked: Asked) -> Reply:
        """To a receive or a settle."""
        if asked.path.endswith("/settle"):
            entries = asked.document["entries"]
            if not self._knows_release and any(entry["action"] == "release" for entry in entries):
                return refused(InvalidField(reason="'release' is no action", pointer="/entries/0/action"))
            return said({"results": self._settle(entries), "failed": 0})
        document = asked.document
        settled = self._settle(document.get("settle", []))
        self.receives.append(document["max_messages"])
        taken, self._free = self._free[: document["max_messages"]], self._free[document["max_messages"] :]
        if not taken and document["wait"]:
            return SILENT
        return packed({"messages": [self._lease(number) for number in taken], "settled": settled})

    def _lease(self, number: int) -> dict[str, Any]:
        self.attempts[number] += 1
        handle = f"{number}:{self.attempts[number]}:{len(self.released)}"
        self._leases[handle] = number
        fields = {"message_id": f"m{number}", "topic": "t", "queue": "broker-a:0", "offset": number, "body": b"x"}
        times = {"born_at": 1, "stored_at": 2, "invisible_until": FAR_MS}
        return {**fields, **times, "attempt": self.attempts[number], "receipt_handle": handle}

    def _settle(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for entry in entries:
            number = self._leases.get(entry["receipt_handle"])
            if number is None:
                continue
            if entry["action"] == "extend":
                self.shortened.append(number)
                continue
            del self._leases[entry["receipt_handle"]]
            if entry["action"] == "ack":
                self.acked.add(number)
            else:
                assert entry["action"] == "release"
                self.attempts[number] -= 1
                self.released.append(number)
                self._free = sorted([*self._free, number])
        return [{"receipt_handle": entry["receipt_handle"], "status": "ok"} for entry in entries]
