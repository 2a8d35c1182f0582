"""The files that a broker offers to a node of its group that must be rebuilt: the manifest from the
core loop, and pieces of files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_store import RebuildSource, StoreError
from tern_wire.errors import RebuildNotHere, RebuildNotNow


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOffer:
    """*manifest* is called in the core loop, *read* (name, position, size) on any thread; *key* is
    the cluster's.
    """

    key: bytes
    manifest: Callable[[], dict[str, Any]]
    read: Callable[[str, int, int], bytes]


def rebuild_offer(config: BrokerConfig, engine: Engine, *, key: bytes) -> RebuildOffer:
    """Return the offer of a node that takes part: only while it serves does it return a
    manifest.
    """
    source = RebuildSource(engine.store)

    def manifest() -> dict[str, Any]:
        if not engine.raft.is_serving:
            raise RebuildNotHere(node=config.node, leader=engine.raft.leader or "")
        if engine.comparer.is_undecided:
            raise RebuildNotNow(reason="the nodes differ and no majority agrees; see `ternmq raft digests`")
        try:
            return source.manifest(engine.raft.applied_index)
        except (OSError, StoreError) as error:
            raise RebuildNotNow(reason=str(error).rstrip(".")) from error

    def read(name: str, position: int, size: int) -> bytes:
        try:
            return source.read(name, position, size)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RebuildNotNow(reason=f"'{name}' cannot be read now: {error.strerror}") from error

    return RebuildOffer(key=key, manifest=manifest, read=read)
