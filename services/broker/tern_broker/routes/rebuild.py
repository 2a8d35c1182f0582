"""GET /v1/broker/rebuild/...: manifest and files of the log, for nodes of this group and for the
operator who makes a backup.

Law: every caller presents a proof with the cluster key, as a member or as `operator`; with TLS also
the certificate of that very member, or the operator's.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from tern_broker.config import BrokerConfig
from tern_security.peer_identity import OPERATOR
from tern_service.process_security import require_broker, require_operator
from tern_store.checksum import crc32
from tern_wire.errors import CertificateForbidden, PeerProofRefused, RebuildFileGone, RebuildFileUnknown
from tern_wire.limits import REBUILD_CHUNK_SIZE_MAX_BYTES
from tern_wire.link.codec import encode_json
from tern_wire.paths import (
    HEADER_CRC32,
    HEADER_PEER_PROOF,
    JSON,
    OCTETS,
    REBUILD_FILES_PATH,
    REBUILD_MANIFEST_PATH,
)
from tern_wire.principals.peer_proof import PeerProofs

AskManifest = Callable[[], "asyncio.Future[dict[str, Any]]"]


class RebuildRoutes:
    """The two routes and their counters. Owner: the HTTP loop."""

    def __init__(
        self, config: BrokerConfig, *, key: bytes, ask_manifest: AskManifest, read: Callable[[str, int, int], bytes]
    ) -> None:
        """*read*: RebuildSource.read, called on another thread."""
        self._proofs = PeerProofs(key, config.group_id, frozenset({*config.members(), OPERATOR}))
        self._members = frozenset(config.members())
        self._ask_manifest, self._read = ask_manifest, read
        self.refused = 0
        self.sent_bytes = 0

    def counters(self) -> dict[str, int]:
        """Return the counters for /metrics."""
        return {"rebuild_requests_refused": self.refused, "rebuild_sent_bytes": self.sent_bytes}

    def router(self) -> APIRouter:
        """Return the routes. The proof is checked before any other part of a request."""
        router = APIRouter(tags=["rebuild"], dependencies=[Depends(self._require_peer)])

        @router.get(REBUILD_MANIFEST_PATH, response_class=Response)
        async def manifest() -> Response:
            """Return the manifest of what can be copied now; 409 from all but the serving
            leader.
            """
            return Response(encode_json(await self._ask_manifest()), media_type=JSON)

        @router.get(REBUILD_FILES_PATH + "/{name}", response_class=Response)
        async def piece(
            name: str,
            position: Annotated[int, Query(ge=0, lt=1 << 63)],
            size: Annotated[int, Query(ge=1, le=REBUILD_CHUNK_SIZE_MAX_BYTES)],
        ) -> Response:
            """Return bytes of one file with their CRC-32; 410 when retention has dropped it."""
            try:
                # A cold disk may be slow: health and heartbeats share this loop.
                data = await asyncio.to_thread(self._read, name, position, size)
            except ValueError as error:
                raise RebuildFileUnknown(reason=str(error)) from error
            except FileNotFoundError as error:
                raise RebuildFileGone(name=name) from error
            self.sent_bytes += len(data)
            return Response(data, media_type=OCTETS, headers={HEADER_CRC32: f"{crc32(data):08x}"})

        return router

    async def _require_peer(self, request: Request) -> None:
        query = request.scope["query_string"].decode("latin-1")
        target = request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        header = request.headers.get(HEADER_PEER_PROOF, "")
        try:
            node = self._proofs.require(header, request.method, target, int(time.time() * 1000))
            if node in self._members:
                require_broker(request, node)
            else:
                require_operator(request)
        except (PeerProofRefused, CertificateForbidden):
            self.refused += 1
            raise
