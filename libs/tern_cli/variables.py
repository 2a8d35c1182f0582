"""Names and defaults that commands share, and the namespace and the context of this command.

Imports no client: that would be most of a command's start.
"""

import os
from contextvars import ContextVar

from tern_cli.failures import CommandFailed
from tern_wire.errors import InvalidField
from tern_wire.names import check_namespace
from tern_wire.paths import PORT_PROXY

ENDPOINT_VARIABLE, DATA_DIR_VARIABLE, NAMESPACE_VARIABLE = "TERNMQ_ENDPOINT", "TERNMQ_DATA_DIR", "TERNMQ_NAMESPACE"
DATA_DIR = ".tern"
ENDPOINT_DEFAULT = f"http://127.0.0.1:{PORT_PROXY}"

# Set once, before the command runs.
_namespace: ContextVar[str] = ContextVar("namespace", default="")
_context: ContextVar[tuple[str, bool]] = ContextVar("context", default=("", False))


def mesh_directory() -> str:
    """Return the directory of the mesh when no option names one."""
    return os.environ.get(DATA_DIR_VARIABLE) or DATA_DIR


def use_namespace(name: str) -> None:
    """Set the namespace of this command's topics and groups ("": none).
    CommandFailed (exit 2) when *name* is not a valid namespace.
    """
    if name:
        try:
            check_namespace(name, "--namespace")
        except InvalidField as error:
            raise CommandFailed("Not a namespace", error.detail, exit_code=2) from error
    _namespace.set(name)


def namespace() -> str:
    """Return the namespace of this command's topics and groups; "" for none."""
    return _namespace.get()


def use_context(name: str, *, is_option: bool) -> None:
    """Set the context of this command ("": none). *is_option*: it stands on the command line, so it
    precedes all variables.
    """
    _context.set((name, is_option))


def command_context() -> tuple[str, bool]:
    """Return the name of this command's context, "" for none, and whether the command line names
    it.
    """
    return _context.get()
