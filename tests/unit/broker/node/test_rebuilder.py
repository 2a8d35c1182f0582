"""A node's log copied over HTTP from a real door: only by who knows the key, only from who serves, and to its end whatever happens."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx

from tern_broker.node.rebuilder import PIECE_SIZE_BYTES, RebuildProgress
from tern_wire.paths import HEADER_CRC32, HEADER_PEER_PROOF, REBUILD_FILES_PATH, REBUILD_MANIFEST_PATH
from tern_wire.principals.peer_proof import PeerRequest, proof_header
from tests.support.raft.http_leader import GROUP, KEY, Leader, copy, require_equal, with_leader
from tests.support.raft.rebuilding import copy_reason


def test_a_log_is_copied_whole_and_its_progress_is_known(tmp_path: Path) -> None:
    """Goal: the copy opens with every entry, and whoever asked on the way knew how much was left."""

    async def work(leader: Leader) -> None:
        progress, seen = RebuildProgress(), list[tuple[str, int, int]]()

        def note(*_: object) -> None:
            document = progress.document()
            seen.append((document["leader"], document["copied_bytes"], document["total_bytes"]))

        leader.on_read = note
        assert await copy(leader, tmp_path, progress=progress)
        require_equal(leader, tmp_path)
        total = leader.store.log.end_position
        assert {leader_name for leader_name, _, _ in seen} == {"a"}
        assert {size for _, _, size in seen} == {total}
        assert [copied for _, copied, _ in seen] == sorted(copied for _, copied, _ in seen)
        assert progress.document()["copied_bytes"] == total

    with_leader(tmp_path, work)


def test_what_the_group_writes_meanwhile_is_copied_too(tmp_path: Path) -> None:
    """Goal: a copy of a log that grows ends near its end, not where the log ended when it began."""

    async def work(leader: Leader) -> None:
        core = asyncio.get_running_loop()

        def grow_once(*_: object) -> None:
            if leader.reads == 2:
                asyncio.run_coroutine_threadsafe(grown(), core).result()

        async def grown() -> None:
            leader.grow(30)

        leader.on_read = grow_once
        assert await copy(leader, tmp_path)
        require_equal(leader, tmp_path)

    with_leader(tmp_path, work)


def test_bad_bytes_and_dropped_files_only_interrupt_the_copy(tmp_path: Path) -> None:
    """Goal: what does not continue the log is asked for again; a file that is gone leads to a new manifest."""

    async def work(leader: Leader) -> None:
        def fail_some(name: str, position: int, size: int) -> bytes | None:
            if leader.reads == 2:
                data = bytearray(leader.source.read(name, position, size))
                data[1000] ^= 4
                return bytes(data)
            if leader.reads == 5:
                raise FileNotFoundError(name)
            return None

        leader.on_read = fail_some
        assert await copy(leader, tmp_path)
        assert leader.reads > 7
        require_equal(leader, tmp_path)

    with_leader(tmp_path, work)


def test_only_a_serving_leader_is_copied_from(tmp_path: Path) -> None:
    """Goal: a node that is asked too early answers 409, and the copy begins when somebody serves."""

    async def work(leader: Leader) -> None:
        leader.is_serving = False
        task = asyncio.create_task(copy(leader, tmp_path))
        async with httpx.AsyncClient(trust_env=False) as client:
            reply = await signed(client, leader.url, REBUILD_MANIFEST_PATH, nonce="0" * 32)
        assert (reply.status_code, reply.json()["code"]) == (409, "rebuild-not-here")
        assert leader.reads == 0
        assert not task.done()
        leader.is_serving = True
        assert await task
        require_equal(leader, tmp_path)

    with_leader(tmp_path, work)


def test_a_stop_ends_the_copy_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """Goal: a process that is asked to stop is not held up, and nothing that was copied is lost."""

    async def work(leader: Leader) -> None:
        stop, core = asyncio.Event(), asyncio.get_running_loop()

        def stop_soon(*_: object) -> None:
            if leader.reads == 12:
                core.call_soon_threadsafe(stop.set)

        leader.on_read = stop_soon
        assert not await copy(leader, tmp_path, stop=stop)
        assert copy_reason(tmp_path / "b")
        before, pieces = leader.reads, -(-leader.store.log.end_position // PIECE_SIZE_BYTES)
        assert await copy(leader, tmp_path)
        assert leader.reads - before < pieces
        require_equal(leader, tmp_path)

    with_leader(tmp_path, work)


async def signed(
    client: httpx.AsyncClient, url: str, path: str, *, nonce: str, key: bytes = KEY, **changes: Any
) -> httpx.Response:
    """A request with a proof, or one that is wrong in something."""
    facts: dict[str, Any] = {
        "method": "GET",
        "target": path,
        "node": "b",
        "group_id": GROUP.group_id.hex(),
        "time_ms": int(time.time() * 1000),
    }
    request = PeerRequest(**(facts | changes), nonce=nonce)
    return await client.get(url + path, headers={HEADER_PEER_PROOF: proof_header(key, request)})


def test_a_door_opens_only_to_nodes_with_the_key(tmp_path: Path) -> None:
    """Goal: no proof, another key, group, node, path, query or time, and a proof that was used: 401, all counted, none parsed."""

    async def work(leader: Leader) -> None:
        piece = f"{REBUILD_FILES_PATH}/{0:020d}?position=0&size=100"
        async with httpx.AsyncClient(trust_env=False) as client:
            refused = [
                await client.get(leader.url + piece),
                await client.get(leader.url + REBUILD_MANIFEST_PATH, headers={HEADER_PEER_PROOF: "1 b 1 2 3"}),
                await signed(client, leader.url, piece, nonce="1" * 32, key=bytes(32)),
                await signed(client, leader.url, piece, nonce="2" * 32, group_id="h" * 32),
                await signed(client, leader.url, piece, nonce="3" * 32, node="d"),
                await signed(client, leader.url, piece, nonce="4" * 32, target=piece.replace("100", "200")),
                await signed(client, leader.url, piece, nonce="5" * 32, target=REBUILD_MANIFEST_PATH),
                await signed(client, leader.url, piece, nonce="6" * 32, method="PUT"),
                await signed(client, leader.url, piece, nonce="7" * 32, time_ms=int(time.time() * 1000) - 70_000),
                await signed(client, leader.url, piece, nonce="8" * 32, time_ms=int(time.time() * 1000) + 70_000),
                await client.get(f"{leader.url}{REBUILD_FILES_PATH}/x?position=no"),
            ]
            assert [(reply.status_code, reply.json()["code"]) for reply in refused] == [
                (401, "peer-proof-refused")
            ] * len(refused)
            good = await signed(client, leader.url, piece, nonce="9" * 32)
            again = await signed(client, leader.url, piece, nonce="9" * 32)
            assert (good.status_code, len(good.content), again.status_code) == (200, 100, 401)
            assert good.headers[HEADER_CRC32]
            metrics = (await client.get(leader.url + "/metrics")).text
            assert f"rebuild_requests_refused_total {len(refused) + 1}.0" in metrics
        assert leader.reads == 1

    with_leader(tmp_path, work)


def test_an_operator_with_the_key_is_given_what_a_backup_needs(tmp_path: Path) -> None:
    """Goal: in its own name, which is no member's; without the key nothing."""

    async def work(leader: Leader) -> None:
        piece = f"{REBUILD_FILES_PATH}/{0:020d}?position=0&size=100"
        async with httpx.AsyncClient(trust_env=False) as client:
            manifest = await signed(client, leader.url, REBUILD_MANIFEST_PATH, nonce="1" * 32, node="operator")
            first = await signed(client, leader.url, piece, nonce="2" * 32, node="operator")
            strange = await signed(client, leader.url, piece, nonce="3" * 32, node="operator", key=bytes(32))
        assert (manifest.status_code, manifest.json()["end"][0]) == (200, leader.store.log.end_index)
        assert (first.status_code, len(first.content)) == (200, 100)
        assert (strange.status_code, strange.json()["code"]) == (401, "peer-proof-refused")

    with_leader(tmp_path, work)


def test_a_door_gives_pieces_of_the_log_and_nothing_else(tmp_path: Path) -> None:
    """Goal: other names are 404, other sizes and paths 400, a dropped segment 410."""

    async def work(leader: Leader) -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            statuses = [
                (await signed(client, leader.url, f"{REBUILD_FILES_PATH}/{rest}", nonce=f"{number:032x}")).status_code
                for number, rest in enumerate(
                    [
                        "votes?position=0&size=10",
                        "start?position=0&size=10",
                        "..%2F..%2Fkey?position=0&size=10",
                        f"{16 << 40:020d}?position=0&size=10",
                        f"{0:020d}?position=-1&size=10",
                        f"{0:020d}?position=0&size={(4 << 20) + 1}",
                        f"{0:020d}",
                    ]
                )
            ]
        assert statuses == [404, 404, 400, 410, 400, 400, 400]

    with_leader(tmp_path, work)


def test_another_key_never_gets_a_byte(tmp_path: Path) -> None:
    """Goal: a node of another cluster goes on asking, and says why, but has nothing."""

    async def work(leader: Leader) -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(copy(leader, tmp_path, key=bytes(32), stop=stop))
        async with httpx.AsyncClient(trust_env=False) as client:
            while "rebuild_requests_refused_total 0.0" in (await client.get(leader.url + "/metrics")).text:
                assert not task.done()
        stop.set()
        assert not await task
        assert leader.reads == 0

    with_leader(tmp_path, work)
