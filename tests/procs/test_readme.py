"""The README's own commands, run as a reader would: every block marked `sh {run}`, in order, in one shell, against a real mesh."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.mesh import running_mesh

README = Path(__file__).resolve().parents[2] / "README.md"
ENDPOINT = "http://127.0.0.1:8080"
# What the reader's shell has anyway, and that a refused request is a failure.
PREAMBLE = """set -euo pipefail
ternmq() { "$TERNMQ_PYTHON" -m tern_cli "$@"; }
curl() { command curl --fail-with-body "$@"; echo; }
"""


def runnable_blocks() -> list[str]:
    """The blocks marked as runnable."""
    return re.findall(r"^```sh \{run\}\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_readme_work_as_they_stand(tmp_path: Path) -> None:
    """Send, receive and ack, and a transaction, by curl and by the command line; only the endpoint is another one."""
    blocks = runnable_blocks()
    assert len(blocks) >= 4
    with running_mesh(tmp_path / "mesh") as mesh:
        script = PREAMBLE + "\n".join(blocks).replace(ENDPOINT, mesh.endpoint)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "TERNMQ_ENDPOINT": mesh.endpoint, "TERNMQ_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert '"body":"hello"' in done.stdout
    assert '"json":{"total": 12}' in done.stdout
    assert "1000 messages sent to numbers." in done.stdout
    assert re.search(r"^broker-a:\d 0: \d+$", done.stdout, re.MULTILINE)
    assert '"state":"committed"' in done.stdout
    assert re.search(r"^order 4713 is paid$", done.stdout, re.MULTILINE)
