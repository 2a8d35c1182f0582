"""The README's own commands, run as a reader would: every block marked `sh {run}`, in order, in one shell, against a real mesh; every block
marked `python {run}` as a file of its own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mesh.mesh import Mesh, running_mesh

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


def programs() -> list[str]:
    """The blocks marked as runnable programs. Those of `help(tern_client)` run in tests/mesh/sdk."""
    return re.findall(r"^```python \{run\}\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def run_program(mesh: Mesh, path: Path, program: str) -> tuple[set[str], str]:
    """What *program* prints until it has printed every body that it sends, and what it says when Ctrl-C ends it then."""
    path.write_text(program.replace(ENDPOINT, mesh.endpoint))
    sent = set(re.findall(r"""\bb"[^"]+\"""", program))
    printed: set[str] = set()
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            for line in running.stdout:
                printed.add(line.strip().replace("'", '"'))
                if printed >= sent:
                    break
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 128 + signal.SIGINT, said
    assert printed >= sent, program
    return sent, said


@pytest.mark.timeout(120)
def test_the_programs_of_the_readme_run_as_files(tmp_path: Path) -> None:
    """Each sends and receives, for ever; Ctrl-C ends it without a word."""
    assert len(programs()) == 2
    with running_mesh(tmp_path / "mesh") as mesh:
        for name in ("topics/orders", "groups/billing"):
            mesh.settled("PUT", f"/v1/{name}")
        for number, program in enumerate(programs()):
            sent, said = run_program(mesh, tmp_path / f"program_{number}.py", program)
            assert (bool(sent), said) == (True, "")


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
