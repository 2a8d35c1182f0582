"""Procedure of `ternmq store dump` for a node's own directory: lines, tables and warnings."""

from collections.abc import Iterable, Iterator
from typing import Any

import typer

from tern_cli.readable import shown, shown_time
from tern_cli.store.native_directory import NodeDirectory, running_node
from tern_cli.store.native_documents import Document, documents
from tern_cli.store.native_selection import Selection, What
from tern_cli.store.rocketmq_lines import printable

_TIME_WIDTH = 29
# Column and width; texts are left-aligned, numbers right-aligned.
_COLUMNS: dict[What, list[tuple[str, int]]] = {
    What.ENTRIES: [
        *(
            ("index", 10),
            ("term", 6),
            ("position", 14),
            ("size", 9),
            ("kind", 9),
            ("version", 7),
            ("now_ms", _TIME_WIDTH),
        ),
        ("commands", 40),
    ],
    What.RECORDS: [
        *(("topic", 24), ("queue", 6), ("offset", 10), ("position", 14), ("size", 9), ("body_size", 9)),
        *(("stored_ms", _TIME_WIDTH), ("tag", 16), ("keys", 20), ("message_id", 32)),
    ],
    What.QUEUES: [("offset", 11), ("position", 14), ("size", 9), ("tag_hash", 20)],
    What.INDEX: [("number", 10), ("key_hash", 11), ("position", 14), ("stored_ms", _TIME_WIDTH), ("previous", 10)],
    What.TIMERS: [
        *(("deliver_ms", _TIME_WIDTH), ("timer_id", 20), ("topic", 24), ("queue", 6), ("position", 14), ("size", 9)),
        ("tag_hash", 20),
    ],
    What.STATE: [
        *(("file", 30), ("index", 10), ("term", 6), ("position", 14), ("payload_bytes", 13), ("queues", 7)),
    ],
}
_TEXTS = {"kind", "commands", "topic", "tag", "keys", "message_id", "file"}


def warn(text: str) -> None:
    """Print a note to stderr: the output may be incomplete."""
    typer.echo(f"{typer.style('note:', fg='yellow')} {text}", err=True)


def open_node(path: Any) -> NodeDirectory:
    """Open the directory, with warnings if a node runs there or was not stopped cleanly."""
    node = NodeDirectory(path)
    owner = running_node(path)
    if owner is not None:
        warn(f"Process {owner} is running on this directory: the end of its log and queues moves while it is shown.")
    elif not node.is_clean:
        warn("The node was not stopped in order: derived files are shown as of its last saved state.")
    return node


def dumped(node: NodeDirectory, selections: Iterable[Selection]) -> Iterator[Document]:
    """Yield the documents of all *selections*, one selection after the other."""
    for selection in selections:
        yield from documents(node, selection, warn)


def table(node: NodeDirectory, selections: Iterable[Selection]) -> Iterator[bytes]:
    """Yield the same documents as table lines, with a line about each queue or index file."""
    for selection in selections:
        columns = _COLUMNS[selection.what]
        shown = [(title.removesuffix("_ms"), width) for title, width in columns]
        titles = [title.ljust(width) if title in _TEXTS else title.rjust(width) for title, width in shown]
        heading = f"{'  '.join(titles).rstrip()}\n{'-' * len('  '.join(titles))}\n".encode()
        has_groups = selection.what in {What.QUEUES, What.INDEX}
        if not has_groups:
            yield heading
        for document in documents(node, selection, warn):
            if has_groups and columns[0][0] not in document:
                facts = ", ".join(
                    f"{name.removesuffix('_ms')} {_readable(name, value)}" for name, value in document.items()
                )
                yield f"\n{printable(facts)}\n".encode() + heading
                continue
            cells = (_cell(_readable(name, document[name]), width, name in _TEXTS) for name, width in columns)
            yield f"{'  '.join(cells).rstrip()}\n".encode()


def _readable(name: str, value: Any) -> Any:
    """Return *value* for people: fields of files that end in `_ms` are points in time."""
    if name.endswith("_ms") and isinstance(value, int):
        return shown_time(value)
    return shown(name, value) if isinstance(value, bool) else value


def _cell(value: Any, width: int, is_text: bool) -> str:
    if isinstance(value, list):
        words = [f"{item['kind']} {item['count']}" if isinstance(item, dict) else str(item) for item in value]
        value = " ".join(words) if not value or isinstance(value[0], str) else ", ".join(words)
    text = "" if value is None else printable(str(value))
    return text.ljust(width) if is_text else text.rjust(width)
