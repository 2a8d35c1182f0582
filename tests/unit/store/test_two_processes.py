"""Two processes on one data directory: the second is refused and told who the first is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tern_store import DirectoryInUse, DirectoryLock

HOLD = """
import sys
from pathlib import Path
from tern_store import DirectoryLock
lock = DirectoryLock.acquire(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
TRY = """
import sys
from pathlib import Path
from tern_store import DirectoryInUse, DirectoryLock
try:
    DirectoryLock.acquire(Path(sys.argv[1]))
except DirectoryInUse as refused:
    sys.exit(str(refused))
"""


def test_the_second_process_is_refused_and_named_the_first(tmp_path: Path) -> None:
    """One process holds the directory: a second and this one are refused, with its pid; killed, it holds nothing any more."""
    directory = tmp_path / "node"
    holding = [sys.executable, "-c", HOLD, str(directory)]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        second = subprocess.run(
            [sys.executable, "-c", TRY, str(directory)], capture_output=True, text=True, check=False
        )
        assert second.returncode == 1
        assert f"is in use by process {first.pid}." in second.stderr
        with pytest.raises(DirectoryInUse, match=f"in use by process {first.pid}"):
            DirectoryLock.acquire(directory)
        os.kill(first.pid, signal.SIGKILL)
    third = subprocess.run([sys.executable, "-c", TRY, str(directory)], capture_output=True, text=True, check=False)
    assert (third.returncode, third.stderr) == (0, "")
