"""Errors of a mesh that cannot serve a request now: limits, leaders, disks, restarts. Imported from
errors.py, which has the table.
"""

from typing import Any

from tern_wire.tern_error import TernError


class LimitReached(TernError):
    code, status, title = "limit-reached", 429, "A limit of the cluster is reached"
    fix = "{what}: {actual} of {limit}. {remedy}"
    _REMEDY = "Remove some, or settle what was received."

    def __init__(self, *, remedy: str = "", **fields: Any) -> None:
        """*remedy*: what to do, where removing and settling are not the only remedies."""
        super().__init__(**fields, remedy=remedy or self._REMEDY)
        if not remedy:
            del self.fields["remedy"]


class NoLeader(TernError):
    code, status, retryable, title = "no-leader", 503, True, "The broker group has no leader now"
    fix = "Broker group '{broker_group}' is electing a leader or has lost its majority. Nothing was stored; repeat shortly."


class NotLeader(TernError):
    code, status, retryable, title = "not-leader", 503, True, "This broker does not lead its group"
    fix = "Broker '{node}' is not the leader; leader: {leader}. Nothing was stored."


class NoNameServer(TernError):
    code, status, retryable, title = "no-name-server", 503, True, "No name server can be reached"
    fix = "None of the name servers ({endpoints}) answers. Start one, or correct the proxy's --namesrv."


class WarmingUp(TernError):
    code, status, retryable, title = "warming-up", 503, True, "The name server has just started"
    fix = "The name server has not had the registrations of all brokers yet. Repeat shortly."


class Overloaded(TernError):
    code, status, retryable, title = "overloaded", 503, True, "A budget of the mesh is used up"
    fix = (
        "The budget for {what} is used up. Nothing was done: repeat after the pause that Retry-After names. If it goes on, send more slowly, "
        "or add proxies or broker groups; idempotency keys end after 10 minutes, and a send without one needs no room for it."
    )


class DiskFull(TernError):
    code, status, retryable, title = "disk-full", 503, True, "The broker's disk is full"
    fix = "Broker group '{broker_group}' refuses sends until disk space is free. Nothing was stored; reads and acks go on.{held_by}"

    def __init__(self, *, held_by: str = "", **fields: Any) -> None:
        """*held_by*: a sentence with the topics or groups that hold the space, and the remedy."""
        super().__init__(**fields, held_by=f" {held_by}" if held_by else "")
        if held_by:
            self.fields["held_by"] = held_by
        else:
            del self.fields["held_by"]


class NodeLacks(TernError):
    code, status, retryable, title = (
        "node-lacks-resources",
        503,
        True,
        "The operating system refuses the broker a resource",
    )
    fix = "Node '{node}' was refused by its operating system: {lack}. Repeat shortly; `ternmq status` has the remedy."


class BrokerGroupNotWritable(TernError):
    code, status, retryable, title = (
        "broker-group-not-writable",
        503,
        True,
        "The broker group's write permission is withdrawn",
    )
    fix = (
        "An operator has withdrawn the write permission of broker group '{broker_group}'. Nothing was stored; restore it with "
        "`ternmq namesrv restore-write {broker_group}`, or send without key, message group and queue to a topic that others host too."
    )


class ConfigurationNotSaved(TernError):
    code, status, retryable, title = (
        "configuration-not-saved",
        503,
        True,
        "The name server cannot save its configuration",
    )
    fix = (
        "{reason}. The change is not in effect. Make room in the name server's --data-dir or mend its disk, and repeat."
    )


class StorageDamaged(TernError):
    code, status, retryable, title = "storage-damaged", 503, True, "The broker found damage in its files"
    fix = "Node '{node}' leaves broker group '{broker_group}' to mend or report it; another takes over. Repeat the request."


class ShuttingDown(TernError):
    code, status, retryable, title = "shutting-down", 503, True, "This process is stopping"
    fix = "Repeat at another instance."


class OutcomeUnknown(TernError):
    code, status, retryable, title = "outcome-unknown", 504, True, "The outcome is unknown"
    fix = "The broker group did not answer in time. Repeat with the same Idempotency-Key: it is stored once."


class StaleRegistration(TernError):
    code, status, title = "stale-registration", 409, "A newer leader is registered"
    fix = "Broker group '{broker_group}' is led in term {actual}; this registration is of term {term}."
