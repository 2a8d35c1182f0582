"""An fdatasync that fails is final: the process ends with a code of its own, and no later start serves what may be lost."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, os, random, sys
from pathlib import Path
from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_broker.run import peer_links
from tern_raft import ProcessRuntime

is_broken = False
real = os.fdatasync

def failing(fd):
    if is_broken and "commitlog" in os.readlink(f"/proc/self/fd/{fd}"):
        raise OSError(5, "Input/output error")
    real(fd)

os.fdatasync = failing

async def main():
    global is_broken
    port = int(sys.argv[2])
    config = BrokerConfig(
        node="a-0", broker_group="a", peers=(f"a-0=127.0.0.1:{port}",), raft_port=port, data_dir=Path(sys.argv[1]),
        cluster_key_file=Path("unused"), group_id="ab" * 16, bootstrap=True, segment_size_bytes=16 << 20,
    )
    links = peer_links(config, bytes(32))
    engine = Engine(config, runtime=ProcessRuntime(), links=links, on_change=lambda: None)
    await links.start(engine.raft.transport)
    engine.begin()
    is_broken = sys.argv[3] == "broken"  # the first entry of its term is on its way
    await asyncio.sleep(30)

asyncio.run(main())
"""


def free_port() -> int:
    """One that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(directory: Path, disk: str) -> subprocess.CompletedProcess[str]:
    """A node whose *disk* is "broken" or "good" once it runs."""
    command = [sys.executable, "-c", PROGRAM, str(directory), str(free_port()), disk]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ)


def test_a_failed_sync_ends_the_node_for_good(tmp_path: Path) -> None:
    """Exit code 74, a note in the directory, and a start that refuses with file and reason."""
    first = start(tmp_path, "broken")
    assert first.returncode == 74, first.stderr
    note = json.loads((tmp_path / "quarantine").read_text())
    assert "Input/output error" in note["reason"]
    again = start(tmp_path, "good")
    assert again.returncode == 1
    assert "Quarantined" in again.stderr
    assert "Input/output error" in again.stderr
