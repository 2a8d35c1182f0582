"""Named contexts of a user: meshes with their proxies, namespace and credentials, in one file that
the SDK, the command line and Spark read.

    TERNMQ_CONTEXTS_FILE, else $XDG_CONFIG_HOME/ternmq/contexts.json,
    else ~/.config/ternmq/contexts.json

    {"version": 1, "current": "prod",
     "contexts": {"prod": {"endpoints": ["https://mq.example.com"], "namespace": "shop",
                           "key_file": "/keys/prod.key", "ca_file": "/keys/ca.crt"}}}

The file holds names of key files, no keys. It decides where a key is sent, so it has mode 0600, and
a file that others may write is refused.

Law: a change writes a whole new file and renames it over the old one, under a lock; readers need no
lock. Fields that a later release has written are kept by reading, and lost by a change of an
earlier one: so an earlier release refuses to change a file of a later version.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from tern_client.transport.endpoints import Endpoints
from tern_wire.errors import InvalidField, TernError
from tern_wire.names import check_namespace
from tern_wire.reasons import reason_of

CONTEXT, CONTEXTS_FILE = "TERNMQ_CONTEXT", "TERNMQ_CONTEXTS_FILE"
_VERSION = 1
# Some thousand contexts. Anything larger is another file.
_SIZE_MAX_BYTES = 1_048_576
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NAME_LENGTH_MAX = 64
_REMEDY_FILE = "Repair it, or move it away and add the contexts again with `ternmq context add`"


class ContextUnusable(TernError, ValueError):
    """A named context, or the file of the contexts, cannot be used. Raised by clients, never on the
    wire. Also a ValueError.

    Example:

        from tern_client import ContextUnusable, connect_blocking

        try:
            connect_blocking(context="no-such-context")
        except ContextUnusable as error:
            print(error.code)  # -> context-unusable
    """

    code: ClassVar[str] = "context-unusable"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "The context cannot be used"
    fix: ClassVar[str] = "{reason}. {remedy}."

    def __init__(self, *, reason: str, remedy: str) -> None:
        super().__init__(reason=reason, remedy=remedy)


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """One mesh. *key_file*, *ca_file*: absolute paths; "" for none."""

    endpoints: tuple[str, ...]
    namespace: str = ""
    key_file: str = ""
    ca_file: str = ""


class Contexts(msgspec.Struct, frozen=True, kw_only=True):
    """All contexts of a user by name. *current*: the one that is used when none is named, or ""."""

    version: int = _VERSION
    current: str = ""
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        """Return the context *name*; ContextUnusable."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "there is none yet"
            raise ContextUnusable(
                reason=f"There is no context {name!r}; known: {known}",
                remedy="`ternmq context ls` lists them, `ternmq context add` makes one",
            )
        return self.contexts[name]

    def with_context(self, name: str, context: Context) -> "Contexts":
        """Return these contexts with *context* under *name*; the first one becomes current."""
        return Contexts(current=self.current or name, contexts={**self.contexts, name: context})

    def without(self, name: str) -> "Contexts":
        """Return these contexts without *name*; ContextUnusable when there is none of it."""
        self.named(name)
        rest = {other: context for other, context in self.contexts.items() if other != name}
        return Contexts(current="" if self.current == name else self.current, contexts=rest)

    def using(self, name: str) -> "Contexts":
        """Return these contexts with *name* as the current one; ContextUnusable."""
        self.named(name)
        return Contexts(current=name, contexts=self.contexts)


def context_of(endpoints: tuple[str, ...], *, namespace: str = "", key_file: str = "", ca_file: str = "") -> Context:
    """Return a context with checked fields and absolute paths; EndpointMalformed, InvalidField."""
    if namespace:
        check_namespace(namespace, "namespace")
    return Context(
        endpoints=Endpoints(endpoints).urls,
        namespace=namespace,
        key_file=os.path.abspath(os.path.expanduser(key_file)) if key_file else "",
        ca_file=os.path.abspath(os.path.expanduser(ca_file)) if ca_file else "",
    )


def check_context_name(name: str) -> str:
    """Return *name*: 1 to 64 characters, printable, without blanks at its ends. InvalidField."""
    if not 0 < len(name) <= _NAME_LENGTH_MAX or not name.isprintable() or name != name.strip():
        reason = f"A context's name has 1 to {_NAME_LENGTH_MAX} printable characters"
        raise InvalidField(reason=reason, pointer="context")
    return name


def contexts_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the contexts' file. It need not exist."""
    if named := environ.get(CONTEXTS_FILE):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(home, "ternmq", "contexts.json")


def read_contexts(file: Path) -> Contexts:
    """Return the contexts in *file*, none if it does not exist; ContextUnusable."""
    try:
        with open(file, "rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(_SIZE_MAX_BYTES + 1)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ContextUnusable(reason=f"{file} cannot be read ({reason_of(error)})", remedy=_REMEDY_FILE) from error
    if mode & _OTHERS_MAY_WRITE:
        raise ContextUnusable(
            reason=f"{file} may be written by other users, who could send your keys elsewhere",
            remedy=f"Look at its contents, then run `chmod 600 {file}`",
        )
    try:
        found = msgspec.json.decode(text, type=Contexts)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ContextUnusable(reason=f"{file} does not hold contexts ({error})", remedy=_REMEDY_FILE) from error
    return found


def change_contexts(file: Path, change: Callable[[Contexts], Contexts]) -> Contexts:
    """Replace the contexts in *file* by *change* of them, and return them; ContextUnusable, and
    what *change* raises. Changes of several processes follow each other.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            before = read_contexts(file)
            if before.version > _VERSION:
                raise ContextUnusable(
                    reason=f"{file} was written by a later release (version {before.version})",
                    remedy="Change it with that release",
                )
            after = change(before)
            fresh = file.with_name(f".{file.name}.new")
            fresh.unlink(missing_ok=True)
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(msgspec.json.format(msgspec.json.encode(after), indent=2) + b"\n")
            os.replace(fresh, file)
        finally:
            os.close(folder)
    except OSError as error:
        raise ContextUnusable(
            reason=f"{file} cannot be written ({reason_of(error)})",
            remedy=f"Make its folder writable, or name another file by {CONTEXTS_FILE}",
        ) from error
    return after
