"""Files, folders and disks that `ternmq` cannot use: one sentence each, at once, that says what to do; never an errno, and nothing is started."""

import ast
import errno
import json
import os
import random
import re
import shutil
import socket
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.failures import CommandFailed
from tern_cli.file_failures import file_failure
from tern_cli.mesh.disk_budget import check_room, room_bytes, with_budget
from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.plan import MeshShape
from tern_client.transport.credentials import CA_FILE, KEY_FILE
from tern_wire.reasons import reason_of
from tests.support.mesh.mesh import free_port_base

RUNNER = CliRunner()
MIB = 1 << 20


def run(*words: str | Path) -> Result:
    """`ternmq WORDS` without anybody at a terminal; what --key-file and --ca-file leave in the environment goes again."""
    return RUNNER.invoke(app, [*map(str, words)], input="", env={KEY_FILE: None, CA_FILE: None})


def sentence_of(done: Result) -> str:
    """The sentence of a failure that has a title and one line."""
    title, sentence = done.stderr.splitlines()
    assert title.startswith("error: ")
    assert "Errno" not in done.output
    assert "Traceback" not in done.output
    return sentence.strip()


@pytest.mark.parametrize("place", ["", "below", "lock", "logs", "data", "cluster.json", "cluster.key", "mesh.json"])
def test_up_names_what_is_in_its_way_and_the_option(place: str, tmp_path: Path) -> None:
    """A file where a folder should be, and the other way round; at once, and nothing is started."""
    root = tmp_path / "mesh"
    if place in {"", "below"}:
        root.write_text("x")
    elif place in {"logs", "data"}:
        root.mkdir()
        (root / place).write_text("x")
    else:
        (root / place).mkdir(parents=True)
    data_dir = root / "below" if place == "below" else root
    began_s = time.monotonic()
    done = run("up", "--data-dir", data_dir, "--port-base", "29000")
    assert done.exit_code == 2, done.output
    assert str(root / place if place not in {"", "below"} else root) in sentence_of(done)
    assert sentence_of(done).endswith("choose another --data-dir.")
    assert time.monotonic() - began_s < 60
    assert not MeshFiles(root).mesh.is_file()


@pytest.mark.parametrize(
    "words",
    [
        "down --data-dir {file}",
        "status --data-dir {file}",
        "init-cluster {file}",
        "init-cluster {file}/x",
        "key create shop --out {file}/x --endpoint http://127.0.0.1:1",
        "key create shop --out {folder} --endpoint http://127.0.0.1:1",
        "raft status --data-dir {file}",
        "namesrv status --data-dir {file}",
        "backup {folder}/b --data-dir {file} --namesrv http://127.0.0.1:1",
        "restore {file} --dir {folder}/r",
        "store stat --data-dir {file}",
        "store verify --data-dir {file}",
        "store export {file} --data-dir {folder}",
        "store import {file} --endpoint http://127.0.0.1:1",
        "store dump --format rocketmq {folder}",
        "send orders @{folder} --endpoint http://127.0.0.1:1",
        "demo transfer --checks pull --data-dir {file} --endpoint http://127.0.0.1:1",
        "--key-file {folder} topic ls --endpoint http://127.0.0.1:1",
        "--ca-file {file} topic ls --endpoint https://127.0.0.1:1",
    ],
)
def test_every_command_that_takes_a_place_says_what_is_wrong_with_it(words: str, tmp_path: Path) -> None:
    """By its name, in a sentence."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    places = {"file": tmp_path / "file", "folder": tmp_path / "folder"}
    done = run(*(word.format_map(places) for word in words.split()))
    assert done.exit_code in {1, 2}, done.output
    assert re.search(r"(file|folder)\b", sentence_of(done))


@pytest.mark.parametrize(
    "code",
    [
        *(
            errno.ENOENT,
            errno.EEXIST,
            errno.ENOTDIR,
            errno.EISDIR,
            errno.ENOTEMPTY,
            errno.EACCES,
            errno.EPERM,
            errno.EROFS,
        ),
        *(
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EFBIG,
            errno.ENAMETOOLONG,
            errno.ELOOP,
            errno.ETXTBSY,
            errno.EIO,
            errno.ESTALE,
        ),
    ],
)
def test_what_a_file_system_may_say_is_a_sentence_with_the_file_and_what_to_do(code: int) -> None:
    """A directory of somebody else's, a read-only file system, a full disk, a quota."""
    failure = file_failure(OSError(code, os.strerror(code), "there/x"), "choose another --data-dir")
    assert "there/x" in failure.detail
    assert failure.detail.endswith("choose another --data-dir.")
    assert os.strerror(code) not in failure.detail
    assert failure.exit_code == 1


def test_what_has_no_file_or_no_sentence_of_its_own_is_told_without_a_number() -> None:
    """Descriptors, memory, ports; and what nobody has thought of."""
    assert "ulimit -n" in file_failure(OSError(errno.EMFILE, "x")).detail
    assert "port" in file_failure(OSError(errno.EADDRINUSE, "x")).detail
    assert "ulimit -n" in file_failure(OSError(errno.EMFILE, "x", "file")).detail
    assert file_failure(OSError(errno.EDOM, "Out of domain", b"f\xff")).detail == "Out of domain (f\ufffd)."
    assert file_failure(OSError("only words")).detail == "only words."


def test_a_cluster_key_that_is_none_is_named_before_anything_starts(tmp_path: Path) -> None:
    """Brokers would refuse it one after the other; programs are told in JSON."""
    root = tmp_path / "mesh"
    root.mkdir()
    (root / "cluster.key").write_bytes(b"short")
    done = run("up", "--data-dir", root, "--port-base", "29000", "-o", "json")
    assert done.exit_code == 1
    told = json.loads(done.stderr.splitlines()[-1])["error"]
    assert "it has 5 bytes, not 32" in told["detail"]
    assert not (root / "mesh.json").exists()


# Room on the disk -------------------------------------------------------------------------------------------------
def needed(shape: MeshShape, free_mib: int) -> CommandFailed | None:
    """Why a new mesh of *shape* is not started on a disk with so much room; None when it is."""
    shape = with_budget(shape, free_bytes=free_mib * MIB, is_new=True)
    try:
        check_room(shape, free_mib * MIB, where="there")
    except CommandFailed as failure:
        return failure
    return None


@pytest.mark.parametrize("budget_bytes", [-1, 0, 100 * MIB])
def test_a_disk_of_600_mib_is_large_enough(budget_bytes: int) -> None:
    """With the usual budget, with one, and with none: segments follow from the disk."""
    shape = MeshShape(disk_budget_bytes=budget_bytes)
    assert needed(shape, 600) is None
    assert room_bytes(with_budget(shape, free_bytes=600 * MIB, is_new=True)) < 150 * MIB


def test_a_disk_that_is_too_small_is_told_with_what_is_needed_and_what_makes_it_less() -> None:
    """Each option that is named would do."""
    failure = needed(MeshShape(disk_budget_bytes=100 << 30), 600)
    assert failure is not None
    assert failure.exit_code == 2
    assert "there has 600 MiB free, and 3 brokers begin with files of 6,360 MiB." in failure.detail
    budget = re.search(r"--disk-budget (\d+), which needs 144 MiB", failure.detail)
    assert budget is not None
    assert needed(MeshShape(disk_budget_bytes=int(budget[1])), 600) is None
    failure = needed(MeshShape(), 100)
    assert failure is not None
    assert "--brokers 1, which needs 48 MiB" in failure.detail
    assert "--disk-budget" not in failure.detail
    assert needed(MeshShape(brokers=1), 100) is None
    failure = needed(MeshShape(brokers=1), 30)
    assert failure is not None
    assert "1 broker begins" in failure.detail
    assert "Choose another --data-dir, on a larger disk." in failure.detail


def test_up_looks_at_the_room_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once; brokers that have their files start whatever room there is, since reading and acking must be possible."""
    found = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: found._replace(free=100 * MIB))
    root = tmp_path / "mesh"
    done = run("up", "--data-dir", root, "--port-base", "29000")
    assert done.exit_code == 2, done.output
    assert "has 100 MiB free" in sentence_of(done)
    assert not (root / "cluster.json").exists()
    assert not (root / "mesh.json").exists()


# The command line's own words -------------------------------------------------------------------------------------
def test_a_port_that_is_taken_leaves_the_next_up_free_to_choose(tmp_path: Path) -> None:
    """Refused with the option that changes it; the mesh that never was has no shape to remember."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        # Beside a mesh that runs with the default ports.
        base = free_port_base(random.Random())
        done = run("up", "--data-dir", tmp_path / "mesh", "--port-base", str(base), "--proxy-port", port)
    assert done.exit_code == 2, done.output
    assert (
        f"Port {port} (http of proxy-0) is taken by another process. Choose another with --proxy-port"
        in sentence_of(done)
    )
    assert not (tmp_path / "mesh" / "cluster.json").exists()


# No number of an error in any sentence ----------------------------------------------------------------------------
_OF_THE_SYSTEM = {"OSError", "IOError", "SSLError", "ssl.SSLError"}


def numbers_in(tree: ast.Module) -> list[int]:
    """Lines where what the operating system raised is put into a sentence as Python writes it: `[Errno 2] ...`."""
    found = []
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None or handler.type is None:
            continue
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(ast.unparse(kind) in _OF_THE_SYSTEM for kind in kinds):
            found += [
                node.value.lineno
                for node in ast.walk(handler)
                if isinstance(node, ast.FormattedValue)
                and ast.unparse(node.value) in {handler.name, f"str({handler.name})"}
            ]
    return found


def test_no_sentence_holds_the_number_of_an_error() -> None:
    """`reason_of` has the words; a log may have both."""
    libraries = ("libs/tern_cli", "libs/tern_client", "libs/tern_security", "libs/tern_service")
    root = Path(__file__).resolve().parents[4]
    wrong = [
        f"{path.relative_to(root)}:{line}"
        for library in (*libraries, "spark/tern_spark", "spark/tern_jobs")
        for path in sorted((root / library).rglob("*.py"))
        for line in numbers_in(ast.parse(path.read_text("utf-8")))
    ]
    assert not wrong
    assert numbers_in(ast.parse("try:\n    f()\nexcept (OSError, ValueError) as e:\n    g(f'no: {e}')"))
    assert not numbers_in(ast.parse("try:\n    f()\nexcept OSError as e:\n    g(f'no: {reason_of(e)}')"))


def test_the_reason_of_an_error_is_in_words() -> None:
    """Of a file, of a name that is not found, of several addresses, of one that says nothing."""
    assert reason_of(FileNotFoundError(errno.ENOENT, "No such file or directory", "x")) == "No such file or directory"
    assert reason_of(RuntimeError("[Errno -2] Name or service not known")) == "Name or service not known"
    assert reason_of(OSError("Multiple exceptions: [Errno 111] a, [Errno 111] b")) == "Multiple exceptions: a, b"
    assert reason_of(TimeoutError()) == "TimeoutError"


def test_an_authority_that_is_none_names_the_authority_and_not_the_key(tmp_path: Path) -> None:
    """What to do about a --ca-file is said of the --ca-file."""
    (tmp_path / "file").write_text("x")
    done = run("--ca-file", tmp_path / "file", "topic", "ls", "--endpoint", "https://127.0.0.1:1")
    assert done.exit_code == 2
    assert "has no certificates" in sentence_of(done)
    assert sentence_of(done).endswith("Name the cluster's ca.crt, in PEM, by ca_file or TERNMQ_CA_FILE.")
