"""What a node looks at before it runs on what its directory holds: StoreError says why it does not, and what helps."""

from tern_store import StoreError


def too_old(level: int, version: int) -> str:
    """Why a node whose release knows *version* of the state machine cannot be in a group of *level*, and what to do."""
    return (
        f"The entries of this group are written for version {level} of the state machine; this release knows {version}. "
        "Start this node with the release that the other members run, or with a newer one. The level was raised when all members knew "
        "it, and it is never lowered: an older release needs a backup from before."
    )


def require_new_enough(level: int, version: int) -> None:
    """StoreError when the group has gone on to what this release does not know."""
    if level > version:
        raise StoreError(too_old(level, version))
