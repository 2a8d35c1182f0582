"""`ternmq worker` without a mesh: what it imports, what it says when it cannot, and what its processes do."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.worker.source_changes import SourceChanges
from tests.support.client.group_proxy import GroupProxy
from tests.support.client.scripted_proxy import blocking_proxy

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
from tern_client import Worker

worker = Worker("http://127.0.0.1:9")
other = 7


class shop:
    worker = worker


@worker.on("t", group="g")
async def handle(body: bytes) -> None:
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a program, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("program_of_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "name, text, target, said",
    [
        ("missing", None, "program_of_missing:worker", "run it from the folder that has program_of_missing.py"),
        ("library", "import no_such_library", "program_of_library:worker", "it needs 'no_such_library'; install that"),
        ("error", "1 / 0", "program_of_error:worker", "ZeroDivisionError: division by zero"),
        ("name", PROGRAM, "program_of_name:wroker", "no attribute 'wroker'; write `wroker = Worker(...)` there"),
        ("kind", PROGRAM, "program_of_kind:other", "program_of_kind:other is a int; name a tern_client.Worker"),
        ("colon", PROGRAM, "program_of_colon", "'program_of_colon' should look like app:worker"),
        (
            "empty",
            "from tern_client import Worker\nw = Worker('http://127.0.0.1:9')",
            "program_of_empty:w",
            "no handler",
        ),
    ],
)
def test_what_cannot_be_run_is_said_with_what_mends_it(
    folder: Path, name: str, text: str | None, target: str, said: str
) -> None:
    """Exit code 2, and no traceback of ours."""
    if text is not None:
        (folder / f"program_of_{name}.py").write_text(text)
    done = CliRunner().invoke(app, ["worker", target])
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr or "1 / 0" in done.stderr


def test_a_grace_that_is_no_duration_is_wrong_usage(folder: Path) -> None:
    """Before anything is imported."""
    done = CliRunner().invoke(app, ["worker", "program_of_nothing:worker", "--grace", "soon"])
    assert (done.exit_code, "--grace" in done.stderr) == (2, True)


def test_files_that_are_new_changed_or_gone_are_seen_and_those_of_libraries_are_not(tmp_path: Path) -> None:
    """Below one folder."""
    (tmp_path / "app.py").write_text("1")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.py").write_text("1")
    for library in (".venv", "env", "node_modules"):
        (tmp_path / library).mkdir()
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    changes = SourceChanges(tmp_path)
    assert changes.changed() == []
    for library in (".venv", "env", "node_modules"):
        (tmp_path / library / "x.py").write_text("1")
    (tmp_path / "notes.txt").write_text("1")
    os.utime(tmp_path / "app.py", ns=(1, 1))
    (tmp_path / "shop" / "orders.py").unlink()
    (tmp_path / "new.py").write_text("1")
    assert changes.changed() == ["app.py", "new.py", "shop/orders.py"]
    assert changes.changed() == []


class Started:
    """A `ternmq worker` in a folder, whose program prints `begins` at each start."""

    def __init__(self, folder: Path, program: str, *options: str) -> None:
        (folder / "app.py").write_text(program)
        path = os.pathsep.join([str(ROOT / "libs"), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tern_cli", "worker", "app:worker", *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line on stdout; "" at its end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> tuple[int, str]:
        """Its exit code and its stderr."""
        try:
            _, err = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, err = self.process.communicate()
        return self.process.returncode, err


# One write each: processes share the pipe.
PRINTING = "import os\nos.write(1, b'begins %d\\n' % os.getpid())\n"


def test_the_processes_of_a_worker_end_with_their_signal_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    """Two processes; one is killed; SIGTERM ends all of them in order."""
    started = Started(tmp_path, PRINTING + PROGRAM, "--processes", "2", "--grace", "5s")
    try:
        pids = [int(started.line().split()[1]) for _ in range(2)]
        os.kill(pids[0], signal.SIGKILL)
        third = int(started.line().split()[1])
        assert third not in pids
        started.process.terminate()
    finally:
        code, err = started.end()
    assert code == 0, err
    assert re.search(r"worker [12] ended with -9 and starts again", err)
    for pid in (*pids, third):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


HANGING = """
import asyncio
import os
from tern_client import Worker

worker = Worker("ENDPOINT")


@worker.on("t", group="g")
async def handle(body: bytes) -> None:
    os.write(1, b"begins\\n")
    while worker.stats().state == "running":
        await asyncio.sleep(0.01)
    os.write(1, b"stops\\n")
    await asyncio.Event().wait()
"""


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one process", "two"])
def test_the_second_signal_ends_handlers_that_hang_at_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Their messages are visible again; what had not begun is untouched; the exit code is that of the signal."""
    group = GroupProxy(retry_ms=60_000)
    group.send("t", *([b"x"] * 8))
    with blocking_proxy(group.answer) as proxy:
        started = Started(tmp_path, HANGING.replace("ENDPOINT", proxy.url), *options)
        try:
            begun = 1 + bool(options)
            assert [started.line() for _ in range(begun)] == ["begins"] * begun
            started.process.send_signal(signal.SIGTERM)
            assert [started.line() for _ in range(begun)] == ["stops"] * begun
            started.process.send_signal(signal.SIGINT)
        finally:
            code, err = started.end()
    assert code == 128 + signal.SIGINT, err
    assert [delay for _, delay in group.nacks] == [0] * begun
    assert sorted(group.attempts.values()) == [1] * begun
    assert not group.leased


def test_the_third_signal_kills_a_program_whose_handler_ignores_its_cancellation(tmp_path: Path) -> None:
    """Nothing of ours waits for it."""
    group = GroupProxy()
    group.send("t", b"x")
    wait = "    await asyncio.Event().wait()\n"
    ignoring = f"    try:\n    {wait}    except asyncio.CancelledError:\n        print('ignores', flush=True)\n{wait}"
    with blocking_proxy(group.answer) as proxy:
        program = HANGING.replace("ENDPOINT", proxy.url).replace(wait, ignoring)
        started = Started(tmp_path, program)
        try:
            for line in ("begins", "stops", "ignores"):
                assert started.line() == line
                started.process.terminate()
        finally:
            code, err = started.end()
    assert code == -signal.SIGTERM, err


def test_a_program_that_cannot_be_imported_ends_all_processes(tmp_path: Path) -> None:
    """It would fail a second later, too."""
    code, err = Started(tmp_path, "1 / 0", "--processes", "2").end()
    assert code == 2
    assert "cannot import app: ZeroDivisionError" in err


def test_a_changed_file_starts_the_worker_again(tmp_path: Path) -> None:
    """With --reload; a program that is broken meanwhile is waited for."""
    started = Started(tmp_path, PRINTING + PROGRAM, "--reload")
    try:
        assert started.line().startswith("begins ")
        (tmp_path / "app.py").write_text("print('broken', flush=True)\n1 / 0\n")
        assert started.line() == "broken"
        (tmp_path / "app.py").write_text("print('mended', flush=True)\n" + PROGRAM)
        assert started.line() == "mended"
        started.process.send_signal(signal.SIGINT)
    finally:
        code, err = started.end()
    assert code == 0, err
    assert "app.py changed: the workers start again" in err
