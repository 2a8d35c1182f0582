"""A mesh of stand-ins for the tests of `ternmq up`: the real command line and supervisor, and services that are told how to misbehave."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.start import stop_mesh
from tests.support.mesh import fake_service
from tests.support.mesh.mesh import free_port_base

DEADLINE_S = 40.0


@dataclass(slots=True)
class Home:
    """A directory with a mesh of stand-ins, and what they are told."""

    files: MeshFiles
    orders: Path
    port_base: int

    def run(self, *words: str) -> Result:
        """`ternmq WORDS --data-dir ...`; after an `up` that worked, when all stand-ins listen that are there for good."""
        done = CliRunner().invoke(app, [*words, "--data-dir", str(self.files.root)])
        if words[0] == "up" and done.exit_code == 0:
            for row in self.files.read_mesh()["processes"]:
                if row["state"] != "failed":
                    eventually(partial(self.listens, row["name"]), f"{row['name']} listens")
        return done

    def listens(self, name: str) -> bool:
        """Whether the stand-in has said so."""
        return "listens" in self.files.log(name).read_text()

    def up(self, *words: str) -> Result:
        """`ternmq up` on this home's ports."""
        return self.run("up", "--port-base", str(self.port_base), *words)

    def order(self, name: str, what: str) -> None:
        """From its next start, *name* does *what*."""
        (self.orders / name).write_text(what)

    def row(self, name: str) -> dict[str, Any]:
        """What mesh.json says of *name*."""
        return next(row for row in self.files.read_mesh()["processes"] if row["name"] == name)

    def starts(self, name: str) -> list[str]:
        """The arguments of every start of *name*."""
        lines = (self.orders / "starts").read_text().splitlines()
        return [line for line in lines if line.startswith(f"{name} ")]


def eventually(check: Callable[[], Any], what: str) -> Any:
    """The first true answer of *check*; AssertionError at the deadline."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (found := check()):
        assert time.monotonic() < deadline_s, f"not in {DEADLINE_S} s: {what}"
        time.sleep(0.01)
    return found


@contextmanager
def stand_in_home(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home whose services are stand-ins; nothing runs in it afterwards."""
    seed = time.time_ns()
    print(f"seed {seed}")
    fakes = directory / "fakes"
    fakes.mkdir()
    for name in ("tern_namesrv", "tern_proxy", "fake_service"):
        copyfile(str(fake_service.__file__), fakes / f"{name}.py")
    for name in ("tern_broker", "tern_txn_checker"):
        copyfile(Path(str(fake_service.__file__)).with_name("saying_broker.py"), fakes / f"{name}.py")
    libs = Path(__file__).parents[3] / "libs"
    monkeypatch.setenv("PYTHONPATH", f"{fakes}:{libs}")
    monkeypatch.setenv("FAKE_ORDERS", str(directory))
    for name in ("TERNMQ_DATA_DIR", "TERNMQ_ENDPOINT", "TERNMQ_NAMESRV", "TERNMQ_CHECK_HOSTS", "TERNMQ_CHECK_HTTP"):
        monkeypatch.delenv(name, raising=False)
    made = Home(MeshFiles(directory / "mesh"), directory, free_port_base(random.Random(seed)))
    try:
        yield made
    finally:
        stop_mesh(made.files)


def mesh_document(**facts: Any) -> dict[str, Any]:
    """A mesh.json with every field, but for *facts* of a mesh that runs nowhere."""
    row = {"name": "proxy-0", "role": "proxy", "pid": 0, "start_ticks": 0, "ports": {"http": 1}, "state": "stopped"}
    return {
        "version": 1,
        "cluster": "tern",
        "data_dir": "/nowhere",
        "boot_id": "none",
        "supervisor": {"pid": 0, "start_ticks": 0},
        "stopping": False,
        "proxies": ["http://127.0.0.1:1"],
        "namesrvs": ["http://127.0.0.1:1"],
        "processes": [{**row, "restarts": 0, "exit_code": None, "reason": ""}],
        **facts,
    }
