"""The command line as `pip install ternmq` without extras has it: what no dependency brings cannot be imported here.

Run as a program (`python -m tests.support.mesh.bare_installation FOLDER`), since what is imported cannot be hidden any more: every command of the tree, and
every service, at a proxy that knows no topic; a JSON object on stdout, by command, of the exit code and all that was said.
"""

import importlib
import importlib.metadata
import io
import json
import os
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

SERVICES = ("namesrv", "broker", "proxy", "txn-checker")
# Beside each command with what it must have: options that make it need more.
MORE = (
    "key create x --type ed25519",
    "demo flights --no-spark",
    "demo transfer --checks pull",
)
# Commands that refuse an `x` before they do anything.
ARGUMENTS = {
    "init-cluster": "{folder}/cluster",
    "restore": "x --dir {folder}/restored",
    "backup": "{folder}/backup --cluster-key-file {folder}/cluster.key",
    "dlq redrive": "x --all",
    "dlq purge": "x --confirm x",
    "group seek": "x x --to end",
    "acl grant": "x ALL --topic x",
    "acl deny": "x ALL --topic x",
    "acl remove": "x ALL --topic x",
    "acl check": "x PUB --topic x",
    "raft pass-over": "1",
    "tx ls": "--group x",
}


class Hidden(MetaPathFinder):
    """Finds nothing of *names*, and lets nobody else find it."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """As the protocol says."""
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return None


def extra_modules() -> frozenset[str]:
    """Top-level modules of all installed distributions that a plain installation would not have."""
    plain: set[str] = set()
    new = {("ternmq", "")}
    installed = {_normal(each.metadata["Name"]) for each in importlib.metadata.distributions()}
    while new:
        plain |= {name for name, _ in new}
        new = {(name, extra) for each in new for name, extra in _required(*each) if name in installed - plain}
    brought = importlib.metadata.packages_distributions()
    return frozenset(module for module, by in brought.items() if not {_normal(each) for each in by} & plain)


def _required(name: str, extras: str) -> Iterator[tuple[str, str]]:
    """What *name* with *extras*, separated by commas, needs: names, and the extras of these."""
    for line in importlib.metadata.requires(name) or ():
        found = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", line)
        of = re.search(r"extra == ['\"]([\w-]+)", line)
        if found and (of is None or of[1] in extras.split(",")):
            yield _normal(found[1]), found[2] or ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command of the tree below *command*, with its words."""
    for name in command.list_commands(None) if hasattr(command, "commands") else ():
        yield from leaves(command.get_command(None, name), (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


def line_of(command: Any, words: str, folder: str, url: str) -> list[str]:
    """A command line for *command* with what it must have: a folder of its own, and no mesh of this machine but *url*."""
    line = [*words.split()]
    if words in ARGUMENTS:
        line += ARGUMENTS[words].format(folder=folder).split()
    else:
        line += ["x" for each in command.params if each.param_type_name == "argument" and each.required]
    options = {name: each for each in command.params for name in each.opts if each.param_type_name == "option"}
    for name, each in options.items():
        if each.required and name.startswith("--") and name != "--data-dir":
            line += [name, "x"]
    given = {"--data-dir": f"{folder}/mesh", "--namesrv": url, "--endpoint": url, "--yes": None}
    for name, value in given.items():
        if name in options:
            line += [name, *([value] if value else [])]
    return line


def main(folder: str) -> None:
    """Hide, run everything, tell."""
    os.chdir(folder)  # a command writes the file `x` that it is given
    sys.meta_path.insert(0, Hidden(extra_modules()))
    from typer.main import get_command

    from tern_cli.app import app
    from tern_wire.errors import TopicNotFound
    from tests.support.client.scripted_proxy import blocking_proxy, refused

    Path(folder, "cluster.key").write_bytes(bytes(32))
    # Made once: making the tree takes longer than most commands do.
    command, told = get_command(app), {}
    with blocking_proxy(lambda _: refused(TopicNotFound(topic="x"))) as made:
        for words, leaf in leaves(command):
            if words == "up":  # it would start a mesh; `make packages-test` does
                continue
            told[words] = _said(command.main, line_of(leaf, words, folder, made.url), "ternmq")
        for words in MORE:
            options = ["--data-dir", f"{folder}/mesh"] if words.startswith(("up", "demo")) else []
            options += ["--endpoint", made.url] if words.startswith(("key", "demo")) else []
            told[words] = _said(command.main, [*words.split(), *options], "ternmq")
    try:
        told["import tern_spark"] = (0, str(importlib.import_module("tern_spark")))
    except ImportError as error:
        told["import tern_spark"] = (2, str(error))
    sys.argv[1:] = ["--help"]
    for service in SERVICES:
        module = f"tern_{service.replace('-', '_')}"
        told[f"python -m {module} --help"] = _said(runpy.run_module, module, None, "__main__")
    print(json.dumps(told))


def _said(program: Callable[..., object], *arguments: object) -> tuple[int, str]:
    """The exit code of *program*, and what it wrote."""
    written, code = io.StringIO(), 0
    with redirect_stderr(written), redirect_stdout(written):
        try:
            program(*arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception:
            traceback.print_exc()
    return code, written.getvalue()


if __name__ == "__main__":
    main(sys.argv[1])
