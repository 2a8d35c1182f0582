"""`python -m loadtest.bench.raft.bare NODE DIRECTORY PORT PORT PORT`: bare replication.

The form of a Raft group and nothing else: node 0 appends an entry to its file and sends it to two
others, every node syncs before it counts, and an entry in two of three files is done. No terms, no
log to recover, no checksums, no authentication: a ceiling. As in a single-threaded prototype, the
sync is in the loop; one sync covers all entries that arrived meanwhile.

    | size 4 | entry |   from node 0        | bytes synced 8 |   back
"""

import asyncio
import os
import struct
import sys
from pathlib import Path

import uvloop

from loadtest.bench.raft.load import obey, say

_SIZE, _SYNCED = struct.Struct(">I"), struct.Struct(">Q")
_BUFFER_MAX_BYTES = 64 << 20


class _File:
    """The log of one node: written at once, synced once a turn of the event loop."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.end = 0

    def append(self, entry: bytes | memoryview) -> None:
        self.end += os.write(self._fd, entry)

    def sync(self) -> int:
        os.fdatasync(self._fd)
        return self.end


class _Follower(asyncio.Protocol):
    """Writes received entries, syncs, and reports the synced size."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        at, before = 0, self._file.end
        while len(self._data) - at >= _SIZE.size:
            stop = at + _SIZE.size + _SIZE.unpack_from(self._data, at)[0]
            if stop > len(self._data):
                break
            self._file.append(bytes(self._data[at + _SIZE.size : stop]))
            at = stop
        del self._data[:at]
        if self._file.end > before:
            self._transport.write(_SYNCED.pack(self._file.sync()))  # type: ignore[attr-defined]


class _Leader:
    """Sends entries, and counts the nodes that have synced them."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._peers: list[asyncio.StreamWriter] = []
        self._synced = [0, 0, 0]
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._due = False

    async def connect(self, ports: list[int]) -> None:
        for number, port in enumerate(ports, 1):
            while True:
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    await asyncio.sleep(0.02)
            writer.transport.set_write_buffer_limits(_BUFFER_MAX_BYTES)
            self._peers.append(writer)
            asyncio.create_task(self._listen(number, reader))  # noqa: RUF006 (lives as long as the process)

    async def _listen(self, number: int, reader: asyncio.StreamReader) -> None:
        while True:
            self._done(number, _SYNCED.unpack(await reader.readexactly(_SYNCED.size))[0])

    async def submit(self, payload: bytes) -> None:
        for peer in self._peers:
            peer.writelines([_SIZE.pack(len(payload)), payload])
        self._file.append(payload)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._file.end, done))
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._sync)
        await done

    def _sync(self) -> None:
        self._due = False
        self._done(0, self._file.sync())

    def _done(self, number: int, synced: int) -> None:
        self._synced[number] = synced
        majority = sorted(self._synced)[1]
        while self._waiting and self._waiting[0][0] <= majority:
            self._waiting.pop(0)[1].set_result(None)


async def main() -> None:
    """Serve until the parent closes our standard input."""
    number, folder, ports = int(sys.argv[1]), Path(sys.argv[2]), [int(port) for port in sys.argv[3:]]
    file = _File(folder / f"bare-{number}")
    if number:
        await asyncio.get_running_loop().create_server(lambda: _Follower(file), "127.0.0.1", ports[number])
        await obey(lambda: False, _nobody)
        return
    leader = _Leader(file)
    await leader.connect(ports[1:])
    say({"leads": True})
    await obey(lambda: True, leader.submit)


async def _nobody(_payload: bytes) -> None:
    raise AssertionError("a follower is not given anything")


if __name__ == "__main__":
    uvloop.run(main())
