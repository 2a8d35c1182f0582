"""Inspection of an unparsed command line: format of failures, credentials, encoding. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

# -l is the only short flag that may precede -o in one word (`send -lo json`).
_SHORT = re.compile(r"-l?o(.*)", re.DOTALL)
_LONG = "--output"
# ndjson is lines of JSON (`ternmq store dump`), so its failures are JSON too.
_JSON = {"json", "ndjson"}
# Prefix of the variables that the `ternmq` command itself reads.
_VARIABLE_PREFIX = "TERNMQ_"
# Commands that have options of the same names.
_OWN_OPTIONS = {"serve", "context"}


def asks_for_json(words: Sequence[str]) -> bool:
    """Return whether -o or --output in *words* selects JSON.
    The last one counts; words after `--` do not.
    """
    asked = ""
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else ""
        if word == "--":
            break
        if short := _SHORT.fullmatch(word):
            asked = short[1] or following
        elif word == _LONG:
            asked = following
        elif word.startswith(f"{_LONG}="):
            asked = word.partition("=")[2]
    return asked in _JSON


def credentials_first(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return *words* with those of *options* that have a value moved to the front.
    The command line reads these options only before the command's name. Words after `--` stay, and
    so do the words of `serve`, which belong to another program, and of `context`, which stores
    them.
    """
    end = words.index("--") if "--" in words else len(words)
    front: list[str] = []
    rest: list[str] = []
    at = 0
    while at < end:
        word = words[at]
        if word in options and at + 1 < end and (not rest or rest[0] not in _OWN_OPTIONS):
            front += words[at : at + 2]
            at += 1
        elif word.partition("=")[0] in options and "=" in word and (not rest or rest[0] not in _OWN_OPTIONS):
            front.append(word)
        else:
            rest.append(word)
        at += 1
    return [*front, *rest, *words[end:]]


def not_text(words: Sequence[str], environ: Mapping[str, str]) -> str:
    r"""Return a sentence about the first word or variable that is not UTF-8, "" when all are.
    *words* are checked, and the variables of *environ* that `ternmq` reads. Bad bytes are shown as
    `\xff`.
    """
    for what, word in _named(words, environ):
        try:
            word.encode()
        except UnicodeEncodeError:
            shown = word.encode("utf-8", "surrogateescape" if _is_escaped(word) else "backslashreplace")
            readable = shown.decode("utf-8", "backslashreplace")
            return f"{what}, '{readable}', is not UTF-8. Bytes can be sent from a file or a pipe: ternmq send TOPIC @FILE, or -."
    return ""


def _named(words: Sequence[str], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from ((f"Argument {at}", word) for at, word in enumerate(words, 1))
    yield from ((name, environ[name]) for name in sorted(environ) if name.startswith(_VARIABLE_PREFIX))


def _is_escaped(word: str) -> bool:
    """Return whether every surrogate in *word* stands for an undecodable byte (PEP 383)."""
    return all(0xDC80 <= ord(letter) <= 0xDCFF for letter in word if 0xD800 <= ord(letter) <= 0xDFFF)
