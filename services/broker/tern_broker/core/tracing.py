"""The state of one message for one consumer group, read from the replicated state of its delivery.
Pure.

     not-begun .. waiting -> leased -> settled    acked, or skipped by the group's start or a seek
                     ^         |
                     |         +----> dying -> dead-lettered    tracked in the group's dead letters
                     +- resting, returned                       after an expired lease or a nack
     blocked: behind another message of its message group
"""

from typing import Any

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.lease import Cause, Lease, Run

NOT_BEGUN, WAITING, BLOCKED, LEASED = "not-begun", "waiting", "blocked", "leased"
RESTING, RETURNED, DYING, SETTLED, DEAD = "resting", "returned", "dying", "settled", "dead-lettered"


def state_of(delivery: Delivery | None, offset: int) -> dict[str, Any]:
    """Return `state` of *offset* and its details: `attempts` made, `until_ms`, `cause` and `reason`
    of a death.
    """
    if delivery is None:
        return {"state": NOT_BEGUN}
    if offset >= delivery.cursor:
        return {"state": WAITING}
    for lease in delivery.leases.values():
        if _holds(lease, offset):
            return {"state": LEASED, "attempts": lease.attempt, "until_ms": lease.deadline_of(offset)}
    for rest in delivery.rests.values():
        if _holds(rest, offset):
            return {"state": RESTING, "attempts": rest.attempts, "until_ms": rest.visible_ms}
    for run in delivery.runs.values():
        if _holds(run, offset):
            return {"state": RETURNED, "attempts": run.attempts}
    if (death := delivery.dying.get(offset)) is not None:
        return {"state": DYING, "attempts": death.attempts, "cause": cause_name(death.cause), "reason": death.reason}
    return {"state": SETTLED if delivery.is_settled(offset) else BLOCKED}


def cause_name(cause: int) -> str:
    """Return a Cause as text."""
    return Cause(cause).name.lower() if cause in {item.value for item in Cause} else str(cause)


def _holds(item: Lease | Run, offset: int) -> bool:
    return item.start <= offset < item.start + item.count and not item.settled >> offset - item.start & 1
