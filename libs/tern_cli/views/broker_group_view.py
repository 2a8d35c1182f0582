"""Broker groups for people: leaders, contents that prevent a removal, moves of topics. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tern_cli.readable import shown_time
from tern_cli.views.topic_moves import Move, TopicName

Document = Mapping[str, Any]
# Failures and names listed at most; the others are counted.
SHOWN_MAX = 10
_WHY = {
    "placed": "takes keyed and ordered messages there",
    "moving": "is on its way",
    "unread": "is being read",
    "scheduled": "waits for delivery times",
}


def group_rows(cluster: Document) -> list[dict[str, Any]]:
    """Return one row per broker group, from the cluster's document."""
    rows = []
    for name, group in sorted(cluster["broker_groups"].items()):
        connected = sum(bool(node["connected"]) for node in group["nodes"].values())
        rows.append(
            {
                "broker_group": name,
                "leader": group["leader"] or "-",
                "term": group["term"],
                "nodes": f"{connected}/{max(group['group_size'], len(group['nodes']))}",
                "writable": bool(group["writable"]),
            }
        )
    return rows


def left_rows(left: Document) -> list[dict[str, Any]]:
    """Return one row per topic that keeps the broker group from being removed."""
    return [
        {
            "topic": str(TopicName(row["namespace"], row["topic"])),
            "why": "; ".join(_WHY.get(reason, reason) for reason in row["why"]),
            "unread": row["unread"],
            "leased": row["in_flight"],
            "scheduled": row["scheduled"],
            "groups": ", ".join(f"{group['group']} {group['unread']}" for group in row["groups"]) or "-",
        }
        for row in left["topics_left"]
    ]


def left_lines(left: Document, *, is_withdrawn: bool = False) -> list[str]:
    """Return a sentence for each kind of contents left in a broker group, with its remedy.
    *is_withdrawn*: the group's write permission was withdrawn a moment ago.
    """
    name, lines = left["broker_group"], []
    if left["writable"] and is_withdrawn:
        lines.append(f"{name} may not be written any more; proxies hear of it within 30 s.")
    elif left["writable"]:
        lines.append(f"New messages go to {name}: `ternmq broker-group drain {name}` ends that.")
    if left["placed"]:
        lines.append(
            f"{_topics(left['placed'])} still placed there: `ternmq broker-group drain {name}` places elsewhere."
        )
    if left["moving"]:
        lines.append(
            f"{_topics(left['moving'])} on the way from there: `ternmq broker-group drain {name} --wait` sees to the end."
        )
    if left["unread"]:
        leased = f", {left['in_flight']:,} of them are leased" if left["in_flight"] else ""
        lines.append(
            f"{_messages(left['unread'])} to be read{leased}. Let the groups read, or delete the groups that never will."
        )
    if left["scheduled"]:
        lines.append(f"{_messages(left['scheduled'])} waiting for a delivery time: see `ternmq scheduled ls TOPIC`.")
    if left["transactions"]:
        lines.append(f"{left['transactions']:,} transactions are open or expired: see `ternmq tx ls`.")
    if left["dead_letters"]:
        groups = ", ".join(
            _shown([str(TopicName(row["namespace"], row["group"])) for row in left["dead_letters_left"]])
        )
        lines.append(
            f"{left['dead_letters']:,} dead letters of {groups}: `ternmq dlq redrive GROUP`, or `ternmq dlq purge GROUP`."
        )
    if left["unclaimed"]:
        lines.append(f"{_messages(left['unclaimed'])} in topics that no group reads: they go with the broker group.")
    return lines


def in_short(left: Document, moving: int) -> str:
    """Return the progress of the draining in one line."""
    parts = {
        "placed": left["placed"],
        "on their way": moving or left["moving"],
        "unread": left["unread"],
        "leased": left["in_flight"],
        "scheduled": left["scheduled"],
        "transactions": left["transactions"],
        "dead letters": left["dead_letters"],
    }
    return f"{left['broker_group']}: " + ", ".join(f"{what} {count:,}" for what, count in parts.items() if count)


def move_lines(moves: Sequence[Move], command: str) -> list[str]:
    """Return lines about moved, failed and moving topics, with the earliest end of the moves.
    *command* completes the moves.
    """
    failed, moving = [move for move in moves if move.failure], [move for move in moves if move.is_moving]
    changed = sum(move.changed for move in moves)
    lines = [f"Topics placed anew: {changed:,}; there already: {len(moves) - changed - len(failed):,}."]
    if moving:
        until_ms = max(move.until_ms for move in moving)
        when = f" until {shown_time(until_ms)} at least" if until_ms else ""
        lines.append(
            f"{_topics(len(moving))} on the way{when}: older messages keep their order and their idempotency keys. "
            f"`{command}` then completes it."
        )
    return lines


def moving_lines(moves: Iterable[Move]) -> list[str]:
    """Return what delays topics whose move could have ended, for the first SHOWN_MAX of them."""
    return _shown([f"{move.topic}: it ends when {move.left}" for move in moves if move.is_moving and move.left])


def failure_lines(moves: Iterable[Move]) -> list[str]:
    """Return why topics are not where they should be, for the first SHOWN_MAX of them."""
    return _shown([f"{move.topic}: {move.failure}" for move in moves if move.failure])


def _shown(texts: Sequence[str]) -> list[str]:
    more = len(texts) - SHOWN_MAX
    return [*texts[:SHOWN_MAX], *([f"... and {more:,} more"] if more > 0 else [])]


def _topics(count: int) -> str:
    return "1 topic is" if count == 1 else f"{count:,} topics are"


def _messages(count: int) -> str:
    return "1 message is" if count == 1 else f"{count:,} messages are"
