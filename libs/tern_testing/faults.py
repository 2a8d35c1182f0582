"""Faults that a test asks for: which of the next requests fail, and how. Pure.

Law: faults are met in the order in which they were asked for, each as often as it was asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tern_wire.errors import ERRORS, TernError, error_from

# What a test calls an operation, and its names in the API document. Those names do as well.
OPERATIONS: Mapping[str, frozenset[str]] = {
    "send": frozenset({"sendMessage", "sendBatch"}),
    "receive": frozenset({"receiveMessages"}),
    "settle": frozenset({"ackMessages", "settleMessages"}),
    "pull": frozenset({"pullMessages"}),
    "request": frozenset({"sendRequest"}),
    "reply": frozenset({"sendReply"}),
    "begin": frozenset({"beginTransaction", "beginTransactionOfSeveral"}),
    "end": frozenset({"resolveTransaction"}),
    "check": frozenset({"receiveChecks"}),
}
ANY = "any"
FAULTS_MAX = 1_000


@dataclass(slots=True)
class Fault:
    """*error* answers the request; None: its connection is lost, before or after it was done."""

    operation: str
    error: TernError | None
    times: int
    is_done: bool = False


class Faults:
    """Owner: the door of one mesh. *known*: the names of all operations of the API."""

    def __init__(self, known: frozenset[str]) -> None:
        self._known = known
        self._waiting: list[Fault] = []

    def fail(self, operation: str, code: str, times: int, fields: Mapping[str, object]) -> None:
        """Answer *times* requests with the error *code*. ValueError for unknown names."""
        if code not in ERRORS:
            raise ValueError(f"There is no error '{code}'; docs/limits-and-errors.md lists the codes.")
        self._add(Fault(operation, error_from(code, fields), times))

    def lose(self, operation: str, times: int, *, is_done: bool) -> None:
        """Answer *times* requests with nothing. ValueError for an unknown *operation*."""
        self._add(Fault(operation, None, times, is_done))

    def meet(self, operation: str) -> Fault | None:
        """The fault of a request that has come; counted."""
        for fault in self._waiting:
            if fault.operation in {ANY, operation} or operation in OPERATIONS.get(fault.operation, frozenset()):
                fault.times -= 1
                if not fault.times:
                    self._waiting.remove(fault)
                return fault
        return None

    def clear(self) -> None:
        """Forget all that were not met."""
        self._waiting.clear()

    def _add(self, fault: Fault) -> None:
        if fault.operation != ANY and fault.operation not in OPERATIONS and fault.operation not in self._known:
            raise ValueError(
                f"There is no operation '{fault.operation}'; use {ANY}, {', '.join(OPERATIONS)},"
                " or an operationId of /openapi.json."
            )
        if fault.times < 1:
            raise ValueError(f"times is {fault.times}; use 1 or more.")
        if len(self._waiting) >= FAULTS_MAX:
            raise ValueError(f"{FAULTS_MAX} faults wait already; forget them with clear_faults().")
        self._waiting.append(fault)
