"""What a node looks at before it runs on what its directory holds: StoreError says why it does not, and what helps."""

from tern_broker.config import BrokerConfig
from tern_store import Files, StoreError
from tern_store.small_files import ABORT, read_text


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


def require_no_loss(config: BrokerConfig, boot_id: str, files: Files) -> None:
    """StoreError when messages that were acknowledged from the page cache may have gone with the machine."""
    before = read_text(config.data_dir / ABORT, files)
    if config.flush == "async" and before is not None and not config.accept_loss and boot_id not in before:
        raise StoreError(
            f"{config.data_dir} was not closed before the machine stopped, and with --flush async its last messages may be "
            "lost although they were acknowledged. A node that has lost them must not vote. Start it with --accept-loss "
            "if that loss can be borne, or if it is the only such node and the others are up."
        )
