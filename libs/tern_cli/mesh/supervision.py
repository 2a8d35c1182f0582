"""Decisions of the supervisor: restarts of ended processes, order of a stop.

Pure; times in seconds.
"""

from collections.abc import Collection

# Exit codes of sysexits.h. 74: an fsync failed, so the disk may have lost data and only a rebuild
# helps. 78: the process cannot start with this setting, port or lost data directory, and could not
# a second later either.
EXIT_DISK_FAILED, EXIT_REFUSED = 74, 78
FINAL_EXITS = {EXIT_DISK_FAILED: "fsync failed; rebuild this node", EXIT_REFUSED: "cannot start so; see its log"}
RESTART_FIRST_S = 0.2
RESTART_MAX_S = 5.0
# A child that lived this long had started (a broker takes about a second), so an outside cause
# ended it. It restarts at once, however often that happens, since a killed majority would be
# unavailable for the length of a pause. A child that crashes by itself after this time costs a
# start every 3 s, little more than one that crashes sooner.
STABLE_S = 3.0

# Proxies stop first, so that clients get refused connections and not errors; checkers stop with
# them, since brokers still accept their last answers. Name servers stop last, so that brokers can
# unregister.
STOP_ORDER = ("proxy", "txn-checker", "broker", "namesrv")
# Latest time of each role's SIGTERM, even if an earlier role still lives. After KILL_AFTER_S all
# remaining processes are killed.
STOP_LATEST_S = {"proxy": 0.0, "txn-checker": 0.0, "broker": 2.5, "namesrv": 6.5}
KILL_AFTER_S = 8.0


def restart_delay_s(exit_code: int, uptime_s: float, quick_deaths: int) -> float | None:
    """Return the seconds until the child restarts, None for never.
    *quick_deaths*: how often in a row it has ended before STABLE_S. Only a crash loop backs off:
    0.2 s, 0.4 s, ... 5 s. A child that lived for STABLE_S restarts at once.
    """
    if exit_code in FINAL_EXITS:
        return None
    if uptime_s >= STABLE_S:
        return 0.0
    return min(RESTART_FIRST_S * 2.0 ** min(quick_deaths, 16), RESTART_MAX_S)


def roles_to_stop(elapsed_s: float, alive: Collection[str]) -> list[str]:
    """Return the roles that must have got SIGTERM by now. *alive*: roles with a living process."""
    told: list[str] = []
    for role in STOP_ORDER:
        if elapsed_s >= STOP_LATEST_S[role] or not any(earlier in alive for earlier in told):
            told.append(role)
        else:
            break
    return told
