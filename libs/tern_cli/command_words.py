"""What the words of a command line say before they are parsed: whether a failure is told in JSON, and which are no text. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

# -l is the only short flag that -o may stand behind (`send -lo json`).
_SHORT = re.compile(r"-l?o(.*)", re.DOTALL)
_LONG = "--output"
# Lines of JSON are JSON too (`ternmq store dump`).
_JSON = {"json", "ndjson"}
# Variables of the `ternmq` command itself.
_VARIABLE_PREFIX = "TERNMQ_"


def asks_for_json(words: Sequence[str]) -> bool:
    """Whether -o or --output in *words* asks for JSON; the last one counts, and nothing behind `--`."""
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
    """*words* with those of *options* that have a value moved to the front, where the command line reads them; nothing behind `--`, and nothing
    of `serve`, whose words are another program's."""
    end = words.index("--") if "--" in words else len(words)
    front: list[str] = []
    rest: list[str] = []
    at = 0
    while at < end:
        word = words[at]
        if word in options and at + 1 < end and (not rest or rest[0] != "serve"):
            front += words[at : at + 2]
            at += 1
        elif word.partition("=")[0] in options and "=" in word and (not rest or rest[0] != "serve"):
            front.append(word)
        else:
            rest.append(word)
        at += 1
    return [*front, *rest, *words[end:]]


def not_text(words: Sequence[str], environ: Mapping[str, str]) -> str:
    r"""A sentence about the first of *words*, or variable of ours, with bytes that are not UTF-8 (shown as `\xff`); "" when all are."""
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
    """Whether every surrogate in *word* stands for a byte that could not be decoded (PEP 383)."""
    return all(0xDC80 <= ord(letter) <= 0xDCFF for letter in word if 0xD800 <= ord(letter) <= 0xDFFF)
