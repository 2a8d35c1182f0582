"""Documents as output lines: NDJSON, one JSON array, or a table; streams that hold one line."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from tern_cli.readable import shown_time
from tern_cli.store.file_kinds import FileKind

# Column (a field, or a property after a dot) and width; texts left-aligned, numbers right-aligned.
_COLUMNS: dict[FileKind, list[tuple[str, int]]] = {
    FileKind.COMMIT_LOG: [
        *(("physicalOffset", 14), ("totalSize", 9), ("storeTimestamp", 29), ("queueId", 7), ("queueOffset", 11)),
        *(("bodyLength", 10), ("compression", 11), ("topic", 32), ("properties.TAGS", 16), ("properties.KEYS", 16)),
    ],
    FileKind.CONSUME_QUEUE: [("queueOffset", 11), ("physicalOffset", 14), ("size", 9), ("tagsCode", 20)],
    FileKind.INDEX: [
        *(("index", 10), ("slotHash", 11), ("physicalOffset", 14), ("storeTimestamp", 29), ("previousIndex", 13)),
    ],
}

_TIMES = {"storeTimestamp", "beginTimestamp", "endTimestamp"}
_TEXTS = {"compression", "topic", "properties.TAGS", "properties.KEYS"}


def ndjson_lines(documents: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Return each document as a line."""
    return (orjson.dumps(document) + b"\n" for document in documents)


def json_lines(documents: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Yield the documents as one array, one line per document."""
    before = b"[\n"
    for document in documents:
        yield before + orjson.dumps(document)
        before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


def table_lines(kind: FileKind, path: Path, documents: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Yield the file's name, its columns and its rows; an index's header precedes its columns."""
    columns = _COLUMNS[kind]
    yield f"{printable(str(path))}\n".encode()
    titles = ((name.rpartition(".")[2], width, name in _TEXTS) for name, width in columns)
    head = "  ".join(title.ljust(width) if is_text else title.rjust(width) for title, width, is_text in titles)
    heading = f"{head}\n{'-' * len(head)}\n".encode()
    if kind is not FileKind.INDEX:
        yield heading
    for document in documents:
        if "indexCount" in document:
            fields = [
                f"{name} {shown_time(value) if name in _TIMES else value}"
                for name, value in document.items()
                if name != "file"
            ]
            yield f"{', '.join(fields)}\n".encode() + heading
            continue
        cells = (_cell(document, name, width) for name, width in columns)
        yield f"{'  '.join(cells).rstrip()}\n".encode()
    yield b"\n"


def _cell(document: dict[str, Any], name: str, width: int) -> str:
    field, _, key = name.partition(".")
    value = document[field].get(key, "") if key else document[field]
    if field in _TIMES:
        value = shown_time(value)
    return str(value).rjust(width) if isinstance(value, int) else printable(value).ljust(width)


def printable(text: str) -> str:
    """Return *text* safe for a terminal: a topic of a damaged file must not move the cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
