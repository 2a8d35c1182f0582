"""The number of descriptors that a broker has open at a time, computed from the limits of its
parts. Used once, before anything is opened.
"""

import shutil
from pathlib import Path

from tern_broker.config import BrokerConfig
from tern_service import need_descriptors
from tern_wire.limits import (
    CONNECTIONS_MAX,
    IDEMPOTENCY_KEYS_MAX,
    IDEMPOTENCY_TABLE_KEYS_MAX,
    IDEMPOTENCY_TABLES_WAITING_MAX,
    PEER_CONNECTIONS_MAX,
    STRANGERS_MAX,
)

# Proxies and checkers; peers; health, metrics and nodes that copy the log; and the unidentified
# connections of each of these three ports.
CONNECTIONS = CONNECTIONS_MAX + PEER_CONNECTIONS_MAX + CONNECTIONS_MAX + 3 * STRANGERS_MAX
# Links to peers, connections to name servers, the copying of another node's log.
DIALLED = 32
# Row files of queues and of timers, which are closed in turn, and the key index.
ROW_FILES = 256 + 256 + 32
KEY_TABLES = IDEMPOTENCY_KEYS_MAX // IDEMPOTENCY_TABLE_KEYS_MAX + IDEMPOTENCY_TABLES_WAITING_MAX + 1
# Votes, locks, a saved state and a scrub in progress.
SMALL_FILES = 32
# A segment, and its share of the entry index, whose files are far fewer unless entries are tiny.
FILES_PER_SEGMENT = 2


def need_broker_descriptors(config: BrokerConfig) -> None:
    """Reserve descriptors for the log as it is, and as far as allowed for the log that fits onto
    the disk. SettingsError (exit 78).
    """
    segments = _segments_in(config.data_dir / "commitlog")
    most = _log_size_max_bytes(config) // config.segment_size_bytes
    need_descriptors(
        f"The broker {config.node}",
        connections=CONNECTIONS + DIALLED,
        files=ROW_FILES + KEY_TABLES + SMALL_FILES + FILES_PER_SEGMENT * (segments + 2),
        growth=FILES_PER_SEGMENT * max(0, most - segments),
    )


def _segments_in(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def _log_size_max_bytes(config: BrokerConfig) -> int:
    at = config.data_dir.absolute()
    while not at.exists():
        at = at.parent
    return config.disk_budget_bytes or shutil.disk_usage(at).total
