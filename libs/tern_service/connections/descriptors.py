"""Limit of this process's open files and sockets. Owner of RLIMIT_NOFILE, raised once at the start.

Law: a running process has a descriptor for everything that its own limits allow. Otherwise
connections within their caps could take those that its files need, and the first file that cannot
be opened is a necessary one: of the log, or of a saved state.
"""

import resource

from tern_service.settings import refuse

# For Python, the event loops, modules imported late, directories being synced, a look into /proc.
RESERVE = 64


def need_descriptors(who: str, *, connections: int, files: int, growth: int = 0) -> None:
    """Raise the soft limit to the need of *who*, never lower it.
    SettingsError (exit 78) if the hard limit forbids that. *connections*: all caps of its ports,
    and its own dials; *files*: open files beside them; *growth*: possible additions at run time,
    taken as far as the hard limit goes.
    """
    needed = connections + files + RESERVE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_endless = hard == resource.RLIM_INFINITY
    if not is_endless and hard < needed:
        _refuse(who, needed, f"the hard limit is {hard:,}")
    wanted = needed + growth if is_endless else min(needed + growth, hard)
    for limit in (wanted, needed):
        if soft in {resource.RLIM_INFINITY, max(soft, limit)}:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):
            continue  # some systems allow a process less than its hard limit
        return
    _refuse(who, needed, "that is more than the system allows a process")


def _refuse(who: str, needed: int, reason: str) -> None:
    refuse(
        f"{who} may need {needed:,} open files at a time, and {reason}; raise it with `ulimit -Hn {needed}` as root, "
        f"LimitNOFILE={needed} of systemd, or ulimits.nofile of a container."
    )
