"""How many files and sockets this process may open. Owner of RLIMIT_NOFILE, which it raises once, at the start.

Law: a process that runs has a descriptor for everything that its own limits allow. Else connections within their caps take those that
its files need, and the first file that cannot be opened is one that must be: of the log, or of a saved state.
"""

import resource

from tern_service.settings import refuse

# Python's own, the event loops', modules that are imported late, directories that are synced, a look into /proc.
RESERVE = 64


def need_descriptors(who: str, *, connections: int, files: int, growth: int = 0) -> None:
    """Raise the soft limit to what *who* may need, never lower it; SettingsError (exit 78) if the hard limit forbids that.

    *connections*: all caps of its ports, and what it dials; *files*: what it keeps open beside them; *growth*: what may be added
    while it runs, which is taken as far as the hard limit goes.
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
            continue  # some systems allow a process less than its hard limit says
        return
    _refuse(who, needed, "that is more than the system allows a process")


def _refuse(who: str, needed: int, reason: str) -> None:
    refuse(
        f"{who} may need {needed:,} open files at a time, and {reason}; raise it with `ulimit -Hn {needed}` as root, "
        f"LimitNOFILE={needed} of systemd, or ulimits.nofile of a container."
    )
