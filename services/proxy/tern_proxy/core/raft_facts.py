"""What a broker group's nodes say of their replicated log, as GET /v1/cluster shows it. Pure: STATUS replies in, a document out."""

from typing import Any

_NUMBERS = ("term", "commit_index", "applied_index", "last_index", "synced_index")


def raft_facts(statuses: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any] | None]:
    """By node its role, term and indexes, and how many entries of its leader's log it lacks; None for one that said nothing.

    `lag` is the leader's word, since a follower cannot know what it has not got: None while no leader answers, 0 for the leader.
    """
    leading = [status for status in statuses.values() if status.get("role") == "leader"]
    leader = max(leading, key=lambda status: int(status.get("term", 0)), default=None)
    lags: dict[str, int] = {}
    if leader is not None:
        last = int(leader.get("last_index", 0))
        lags = {str(peer["node"]): max(0, last - int(peer["match_index"])) for peer in leader.get("peers", ())}
        lags[str(leader.get("node", ""))] = 0
    return {name: _facts(status, lags.get(name)) if status else None for name, status in statuses.items()}


def _facts(status: dict[str, Any], lag: int | None) -> dict[str, Any]:
    return {
        "role": str(status.get("role", "")),
        "serving": bool(status.get("serving", False)),
        **{name: int(status.get(name, 0)) for name in _NUMBERS},
        "lag": lag,
        "fsync_ms": float(status.get("fsync_ms", 0.0)),
    }
