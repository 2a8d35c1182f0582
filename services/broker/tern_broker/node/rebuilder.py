"""Copies the log of this node's group from its leader, until a store can be opened: the network
side of `RebuildSink`.

It never gives up: leaders change, files are dropped, disks are full for a while. Copied data stays;
each new manifest shows what is missing. Only the serving leader provides it.
"""

import asyncio
import logging
import secrets
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson

from tern_broker.config import BrokerConfig
from tern_broker.node.peer_http import PeerHttp, PeerUnreachable, Reply
from tern_store import REAL_FILES, CopyRefused, Files, Genesis, RebuildSink, Wanted
from tern_store.checksum import crc32
from tern_store.files import NO_ROOM, is_lack
from tern_wire.errors import TernError, error_from
from tern_wire.limits import REBUILD_RATE_MAX_BYTES_PER_S
from tern_wire.paths import (
    BROKER_PATH,
    HEADER_CRC32,
    HEADER_PEER_PROOF,
    REBUILD_FILES_PATH,
    REBUILD_MANIFEST_PATH,
)
from tern_wire.principals.peer_proof import NONCE_SIZE_BYTES, PeerRequest, proof_header

log = logging.getLogger(__name__)
T = TypeVar("T")
# Some are fetched while another is written. Pieces of 4 MiB are no faster, and make the process 35
# MB larger.
PIECES_IN_FLIGHT = 3
PIECE_SIZE_BYTES = 1 << 20
REQUEST_TIMEOUT_S = 10.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.25, 5.0
PROGRESS_PERIOD_S = 5.0
# Data that the group writes meanwhile is copied as well, until Raft can send the rest in a moment.
GROWTH_LEFT_MAX_BYTES = 8 << 20
MANIFESTS_MAX = 8


@dataclass(slots=True)
class RebuildProgress:
    """The progress of a copy. Written by the rebuilder, read by the status of the same loop."""

    leader: str = ""
    copied_bytes: int = 0
    total_bytes: int = 0
    began_s: float = field(default_factory=time.monotonic)

    def document(self) -> dict[str, Any]:
        """Return the progress for GET /v1/broker."""
        return {
            "leader": self.leader,
            "copied_bytes": self.copied_bytes,
            "total_bytes": self.total_bytes,
            "seconds": round(time.monotonic() - self.began_s, 1),
        }


def peers_http(config: BrokerConfig, told: Callable[[str], int]) -> dict[str, str]:
    """Return the HTTP URLs of the other members: at the port that *told* returns.

    For 0 (the member has not reported a port, is down, or is of a release that does not report it)
    it is the port after the Raft port, as `ternmq up` and the manifests of `deploy` choose it.
    """
    members = config.members().items()
    scheme = "https" if config.has_tls else "http"
    return {
        name: f"{scheme}://{host}:{told(name) or port + 1}" for name, (host, port) in members if name != config.node
    }


async def rebuild(
    config: BrokerConfig,
    *,
    key: bytes,
    peers_http: Callable[[], Mapping[str, str]],
    directory: Path,
    files: Files = REAL_FILES,
    stop: asyncio.Event,
    progress: RebuildProgress | None = None,
    rate_max_bytes_per_s: int = REBUILD_RATE_MAX_BYTES_PER_S,
    tls: ssl.SSLContext | None = None,
) -> bool:
    """Copy the leader's log to *directory*; return True when the copy is in place, False if *stop*
    was set before.

    *peers_http*: URLs of the other members, as far as they are known now. The caller holds the
    directory's lock. WrongGroup: the leader has another group's log. SyncLost: the disk does not
    keep what is written; end the process.
    """
    group = Genesis(bytes.fromhex(config.group_id), tuple(config.members()), config.segment_size_bytes)
    sink = RebuildSink(
        directory,
        group,
        files,
        chunk_size_bytes=PIECE_SIZE_BYTES,
        entry_size_max_bytes=config.store_limits().entry_size_max_bytes,
    )
    client = PeerHttp(REQUEST_TIMEOUT_S, tls)
    copier = _Copier(config, key, peers_http, client, sink, stop, progress or RebuildProgress(), rate_max_bytes_per_s)
    try:
        return await copier.run()
    except _Stopped:
        return False
    finally:
        client.close()
        sink.close()


class _Stopped(Exception):
    """The process is to end."""


class _Copier:
    """One rebuild. All calls of the sink run on another thread, one at a time."""

    def __init__(
        self,
        config: BrokerConfig,
        key: bytes,
        peers: Callable[[], Mapping[str, str]],
        client: PeerHttp,
        sink: RebuildSink,
        stop: asyncio.Event,
        progress: RebuildProgress,
        rate_max_bytes_per_s: int,
    ) -> None:
        self._config, self._key, self._peers = config, key, peers
        self._client, self._sink, self._stop, self._progress = client, sink, stop, progress
        self._rate_max_bytes_per_s = rate_max_bytes_per_s
        self._may_fetch_at_s = 0.0
        self._told_at_s = time.monotonic()

    async def run(self) -> bool:
        """Copy until the copy is complete."""
        pause_s = PAUSE_FIRST_S
        while True:
            before = self._sink.copied_bytes
            try:
                await self._copy_all()
            except (PeerUnreachable, TernError, CopyRefused) as error:
                reason = str(error) or type(error).__name__
            except OSError as error:
                if not is_lack(error):
                    raise
                reason = "this disk has no room for the copy" if error.errno in NO_ROOM else f"this node lacks: {error}"
            else:
                return True
            if self._sink.copied_bytes > before:
                pause_s = PAUSE_FIRST_S
            facts = {"reason": reason, "leader": self._progress.leader, "pause_s": pause_s, **self._figures()}
            log.warning("the copy of the leader's log is interrupted", extra=facts)
            await self._unless_stopped(asyncio.sleep(pause_s))
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def _copy_all(self) -> None:
        sink, progress = self._sink, self._progress
        progress.leader, url = await self._unless_stopped(self._find_leader())
        for number in range(MANIFESTS_MAX):
            document = await self._unless_stopped(self._get_json(url, REBUILD_MANIFEST_PATH))
            has_cleared = sink.cleared_early
            await asyncio.to_thread(sink.begin, document)
            if sink.cleared_early and not has_cleared:
                log.warning("the disk has no room for this node's log and a copy; its own log was removed first")
            self._note_progress()
            if number == 0:
                log.info("copying the leader's log", extra={"leader": progress.leader, **self._figures()})
            elif sink.total_bytes - sink.copied_bytes <= GROWTH_LEFT_MAX_BYTES:
                await self._copy(url)
                break
            await self._copy(url)
        await asyncio.to_thread(sink.finish)
        log.info("the leader's log is copied", extra={"leader": progress.leader, **progress.document()})

    async def _copy(self, url: str) -> None:
        """Write all wanted pieces, in order, with some of them in flight."""
        pending: deque[tuple[Wanted, asyncio.Task[bytearray]]] = deque()
        try:
            while True:
                while len(pending) < PIECES_IN_FLIGHT and (piece := self._sink.wanted(len(pending))) is not None:
                    pending.append((piece, asyncio.create_task(self._fetch(url, piece))))
                if not pending:
                    return
                piece, task = pending[0]
                data = await self._unless_stopped(task)
                await asyncio.to_thread(self._sink.write, piece.name, piece.position, data)
                pending.popleft()
                self._note_progress()
        finally:
            for _, task in pending:
                task.cancel()
            await asyncio.gather(*(task for _, task in pending), return_exceptions=True)

    async def _fetch(self, url: str, piece: Wanted) -> bytearray:
        await self._take_turn(piece.size)
        target = f"{REBUILD_FILES_PATH}/{piece.name}?position={piece.position}&size={piece.size}"
        reply = await self._get(url, target)
        if f"{crc32(reply.content):08x}" != reply.headers.get(HEADER_CRC32.lower()):
            raise CopyRefused(piece.position, f"a piece of {piece.name} was damaged on its way")
        return reply.content

    async def _take_turn(self, size_bytes: int) -> None:
        """Wait until the rate allows another piece; idle time earns no credit."""
        now_s = time.monotonic()
        begin_s = max(self._may_fetch_at_s, now_s)
        self._may_fetch_at_s = begin_s + size_bytes / self._rate_max_bytes_per_s
        await asyncio.sleep(begin_s - now_s)

    # Requests -------------------------------------------------------------------------------------
    async def _find_leader(self) -> tuple[str, str]:
        """Return name and URL of the member that reports that it serves; TernError if none does."""
        # Asked anew each time: peers report their ports as soon as they are up.
        peers = self._peers()
        names = list(peers)
        answers = await asyncio.gather(*(self._get_status(peers[name]) for name in names))
        for name, status in zip(names, answers, strict=True):
            if status.get("serving") is True:
                return name, peers[name]
        heard = [name for name, status in zip(names, answers, strict=True) if status]
        raise CopyRefused(0, f"no member leads and serves; answers from: {', '.join(heard) or 'none'}")

    async def _get_status(self, url: str) -> dict[str, Any]:
        try:
            status = orjson.loads((await self._client.get(url, BROKER_PATH)).content)
        except (PeerUnreachable, orjson.JSONDecodeError):
            return {}
        return status if isinstance(status, dict) else {}

    async def _get_json(self, url: str, target: str) -> dict[str, Any]:
        document = orjson.loads((await self._get(url, target)).content)
        if not isinstance(document, dict):
            raise CopyRefused(0, "the leader's manifest is not an object")
        return document

    async def _get(self, url: str, target: str) -> Reply:
        """Send a signed request; a problem in the answer is raised again."""
        request = PeerRequest(
            method="GET",
            target=target,
            node=self._config.node,
            group_id=self._config.group_id,
            time_ms=time.time_ns() // 1_000_000,
            nonce=secrets.token_hex(NONCE_SIZE_BYTES),
        )
        reply = await self._client.get(url, target, {HEADER_PEER_PROOF: proof_header(self._key, request)})
        if reply.status == 200:
            return reply
        try:
            problem = orjson.loads(reply.content)
            code = problem["code"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise CopyRefused(0, f"{target} was answered {reply.status}") from None
        raise error_from(code, problem)

    # Helpers --------------------------------------------------------------------------------------
    async def _unless_stopped(self, work: "Coroutine[Any, Any, T] | asyncio.Task[T]") -> T:
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                raise _Stopped
            return task.result()
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()

    def _note_progress(self) -> None:
        progress = self._progress
        progress.copied_bytes, progress.total_bytes = self._sink.copied_bytes, self._sink.total_bytes
        if time.monotonic() - self._told_at_s > PROGRESS_PERIOD_S:
            self._told_at_s = time.monotonic()
            log.info("copying the leader's log", extra={"leader": progress.leader, **self._figures()})

    def _figures(self) -> dict[str, int]:
        return {"copied_bytes": self._progress.copied_bytes, "total_bytes": self._progress.total_bytes}
