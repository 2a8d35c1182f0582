"""Checks before a node runs on its directory: StoreError names the reason of a refusal, and the
remedy.
"""

from tern_store import StoreError


def too_old(level: int, version: int) -> str:
    """Return why a node that supports *version* of the state machine cannot be in a group of
    *level*, and the remedy.
    """
    return (
        f"The entries of this group are written for version {level} of the state machine; this release knows {version}. "
        "Start this node with the release that the other members run, or with a newer one. The level was raised when all members knew "
        "it, and it is never lowered: an older release needs a backup from before."
    )


def require_new_enough(level: int, version: int) -> None:
    """Raise StoreError if the group has advanced to a version that this release does not
    support.
    """
    if level > version:
        raise StoreError(too_old(level, version))
