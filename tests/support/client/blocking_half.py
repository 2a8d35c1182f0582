"""The blocking half of the SDK, made from the async one: `make blocking` writes it, `make check`
compares.

    libs/tern_client/asynchronous/topics.py --words replaced, formatted--> libs/tern_client/blocking/topics.py

Words are replaced in code, comments and docstrings alike: a docstring about tasks becomes one about
threads, and an example for asyncio becomes one for threads. Code that differs between asyncio and
threads is written by hand, in pairs of classes with the same methods (PAIRS).
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ASYNCHRONOUS = ROOT / "libs/tern_client/asynchronous"
BLOCKING = ROOT / "libs/tern_client/blocking"
# Written by hand on both sides: the class of asyncio and the one of threads. Docstrings and examples name the public ones.
PAIRS = {
    "AsyncCaller": "BlockingCaller",
    "Closing": "BlockingClosing",
    "Consumer": "BlockingConsumer",
    "LineStream": "BlockingLineStream",
    "OrderedCalls": "BlockingOrderedCalls",
    "Producer": "BlockingProducer",
    "PullConsumer": "BlockingPullConsumer",
    "TransactionProducer": "BlockingTransactionProducer",
    "Transport": "BlockingTransport",
}
# A pattern, and what stands in its place; in this order.
WORDS = [
    (r"\bawait ", ""),
    (r"\basync (?=def|for|with)", ""),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\btern_client\.asynchronous\b", "tern_client.blocking"),
    (r"\btern_client\.transport\.transport\b", "tern_client.transport.blocking_transport"),
    (r"\bfor one event loop\b", "for threads, which may share it"),
    (r"\btasks\b", "threads"),
    (r"\bTasks\b", "Threads"),
    # Examples in docstrings are whole programs: asyncio runs `main()`, threads call it.
    (r"\n +import asyncio\n(?=\n)", ""),
    (r"\basyncio\.run\(main\(\)\)", "main()"),
    # Programs may set attributes of blocking clients, and refer to them weakly.
    (r"\n    __slots__ = \([^)]*\)\n", "\n"),
]


def sources() -> list[Path]:
    """The files that are written."""
    return sorted(path for path in ASYNCHRONOUS.glob("*.py") if path.name != "__init__.py")


def blocking_names() -> dict[str, str]:
    """Every class of the async half, and what it is called in the blocking one: `Admin` BlockingAdmin, `AsyncClient` BlockingClient."""
    names = [name for path in sources() for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE)]
    return {name: "Blocking" + re.sub("^(Async|Plain)", "", name) for name in names} | PAIRS


def blocking_text(text: str, names: dict[str, str]) -> str:
    """The async source *text* for threads, its classes called as *names* say. Only examples are formatted."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    text = re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[0]], text)
    # The imports of examples, which ruff does not see.
    return re.sub(r"(?m)^( +from tern_client import )(\w.*)$", lambda found: found[1] + _in_order(found[2]), text)


def _in_order(names: str) -> str:
    return ", ".join(sorted(names.split(", ")))


def formatted(text: str, path: Path) -> str:
    """*text* as ruff sorts its imports and breaks its lines in the file *path*; CalledProcessError for what is no Python."""
    for command in (["check", "--select=I", "--fix-only", "--quiet"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, f"--stdin-filename={path}", "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def blocking_half() -> dict[Path, str]:
    """The files that are made, with their text."""
    names, made = blocking_names(), {}
    for source in sources():
        path = BLOCKING / source.name
        head = f"# Made by `make blocking` from the file of this name in {ASYNCHRONOUS.name}/. Change that one.\n"
        made[path] = formatted(head + blocking_text(source.read_text("utf-8"), names), path)
    return made


def found_half() -> dict[Path, str]:
    """The files that are there, with their text."""
    return {path: path.read_text("utf-8") for path in BLOCKING.glob("*.py") if path.name != "__init__.py"}


def main() -> int:
    """Write the files that differ, or with `--check` name them; 1 when there are any."""
    parser = argparse.ArgumentParser(description="Make the blocking half of the SDK from the async one.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when a file differs from what would be made"
    )
    is_check = parser.parse_args().check
    made, found = blocking_half(), found_half()
    differing = sorted(path for path in made.keys() | found.keys() if made.get(path) != found.get(path))
    for path in differing:
        if is_check:
            print(f"{path.relative_to(ROOT)}: differs from what `make blocking` makes")
        elif path in made:
            path.write_text(made[path], "utf-8")
        else:
            path.unlink()
    return int(is_check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
