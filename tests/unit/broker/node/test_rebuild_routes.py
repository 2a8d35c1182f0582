"""Who may copy a group's log where there is TLS: the member whose proof and certificate agree, the operator, and nobody else."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request

from tern_broker.config import BrokerConfig
from tern_broker.routes import RebuildRoutes
from tern_security.peer_identity import PeerIdentity
from tern_service import install_problems
from tern_wire.paths import HEADER_PEER_PROOF, REBUILD_FILES_PATH, REBUILD_MANIFEST_PATH
from tern_wire.principals.peer_proof import PeerRequest, proof_header

KEY, GROUP_ID = bytes(range(32)), "ab" * 16
PIECE = f"{REBUILD_FILES_PATH}/{0:020d}?position=0&size=4"


def application(peer: PeerIdentity) -> FastAPI:
    """A broker's, as *peer* sees it through TLS."""
    config = BrokerConfig(
        node="a",
        peers=("a=127.0.0.1:1001", "b=127.0.0.1:1011", "c=127.0.0.1:1021"),
        raft_port=1001,
        data_dir=Path("nowhere"),
        cluster_key_file=Path("nowhere"),
        group_id=GROUP_ID,
    )

    def manifest() -> "asyncio.Future[dict[str, Any]]":
        ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        ready.set_result({"format": 1})
        return ready

    app = FastAPI()
    install_problems(app)

    @app.middleware("http")
    async def shown(request: Request, go_on: Any) -> Any:
        request.state.peer = peer
        return await go_on(request)

    app.include_router(RebuildRoutes(config, key=KEY, ask_manifest=manifest, read=lambda *_: b"data").router())
    return app


def ask(app: FastAPI, target: str, *, node: str, key: bytes = KEY) -> httpx.Response:
    """*target* with a proof in the name of *node*."""
    request = PeerRequest(
        method="GET",
        target=target,
        node=node,
        group_id=GROUP_ID,
        time_ms=int(time.time() * 1000),
        nonce=f"{time.monotonic_ns():032x}",
    )

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return await client.get(target, headers={HEADER_PEER_PROOF: proof_header(key, request)})

    return asyncio.run(get())


@pytest.mark.parametrize("target", [REBUILD_MANIFEST_PATH, PIECE])
@pytest.mark.parametrize(
    ("role", "name", "proof", "status"),
    [
        ("client", "operator", "operator", 200),
        ("broker", "b", "b", 200),
        # An operator is no member, and no member the operator.
        ("client", "operator", "b", 403),
        ("broker", "b", "operator", 403),
        ("broker", "operator", "operator", 403),
        ("broker", "b", "c", 403),
        ("client", "scraper", "operator", 403),
        ("client", "scraper", "b", 403),
        ("proxy", "operator", "operator", 403),
        ("proxy", "b", "b", 403),
        ("checker", "b", "b", 403),
        ("name-server", "b", "b", 403),
        # In the name of nobody whom this group knows.
        ("client", "scraper", "scraper", 401),
        ("broker", "d", "d", 401),
    ],
)
def test_the_log_is_given_to_members_and_to_the_operator(
    target: str, role: str, name: str, proof: str, status: int
) -> None:
    """Both routes ask for the cluster key in a name, and for the certificate of that name."""
    app = application(PeerIdentity(cluster="tern", role=role, name=name))
    assert ask(app, target, node=proof).status_code == status


def test_the_operator_s_certificate_alone_is_worth_nothing_here() -> None:
    """Nor is a member's: the key is asked for first."""
    for role, name in (("client", "operator"), ("broker", "b")):
        app = application(PeerIdentity(cluster="tern", role=role, name=name))
        assert ask(app, PIECE, node=name, key=bytes(32)).status_code == 401
