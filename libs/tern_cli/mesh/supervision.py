"""What to do when a child ends, and in which order a mesh stops. Pure: times are arguments, in seconds."""

from collections.abc import Collection

# An fsync failed: the disk lied, only a rebuild helps. What cannot start as it is (a setting, a port, a data directory that was lost)
# cannot start a second later. Both: sysexits.h's numbers.
EXIT_DISK_FAILED, EXIT_REFUSED = 74, 78
FINAL_EXITS = {EXIT_DISK_FAILED: "fsync failed; rebuild this node", EXIT_REFUSED: "cannot start so; see its log"}
RESTART_FIRST_S = 0.2
RESTART_MAX_S = 5.0
# A child that lived this long had started (a broker is up in about a second), so something killed it: it starts again at once,
# however often that happens, since a killed majority would be away for as long as it waits. One that falls by itself after so long
# costs a start every 3 s, not much more than those that fall sooner.
STABLE_S = 3.0

# Proxies first, so that clients see a closed door and not errors, and with them the checkers, whose last answers brokers take; name servers
# last, so that brokers can unregister.
STOP_ORDER = ("proxy", "txn-checker", "broker", "namesrv")
# When each role is told to stop at the latest, even if an earlier one still lives; then everything is killed.
STOP_LATEST_S = {"proxy": 0.0, "txn-checker": 0.0, "broker": 2.5, "namesrv": 6.5}
KILL_AFTER_S = 8.0


def restart_delay_s(exit_code: int, uptime_s: float, quick_deaths: int) -> float | None:
    """Seconds until the child is started again, None for never. *quick_deaths*: how often in a row it died young before this.

    Only a crash loop backs off: 0.2 s, 0.4 s, ... 5 s. A child that lived for STABLE_S starts at once.
    """
    if exit_code in FINAL_EXITS:
        return None
    if uptime_s >= STABLE_S:
        return 0.0
    return min(RESTART_FIRST_S * 2.0 ** min(quick_deaths, 16), RESTART_MAX_S)


def roles_to_stop(elapsed_s: float, alive: Collection[str]) -> list[str]:
    """Roles that must have been told to stop by now, given the roles that still have a living process."""
    told: list[str] = []
    for role in STOP_ORDER:
        if elapsed_s >= STOP_LATEST_S[role] or not any(earlier in alive for earlier in told):
            told.append(role)
        else:
            break
    return told
