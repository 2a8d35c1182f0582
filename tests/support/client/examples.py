"""The examples in the docstrings of the SDK: found, and run as programs against a real proxy.

    Example:

        from tern_client import BlockingProducer

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            print(producer.send("orders", b"hello").offset)  # -> 0

An example is a complete program. Its prints say what they print, behind `# ->`. The endpoint and the
names in NAMES stand for those of the test.
"""

import contextlib
import inspect
import io
import re
import runpy
import textwrap
from pathlib import Path

import tern_client

ENDPOINT = "http://127.0.0.1:8080"
# A topic, a consumer group and a producer group that every example may use.
NAMES = {"topic": "orders", "group": "billing", "producer_group": "shop"}
_BLOCK = re.compile(r"^Examples?(?: of [\w ]+)?:\n\n((?:(?: {4}.*)?\n)+)", re.MULTILINE)
_SHOWN = re.compile(r"# -> (.*)$", re.MULTILINE)


def public_classes() -> list[type]:
    """The classes that `from tern_client import *` gives, but for those of other packages."""
    found = [getattr(tern_client, name) for name in tern_client.__all__]
    return [kind for kind in found if inspect.isclass(kind) and kind.__module__.startswith("tern_client")]


def examples_of(docstring: str | None) -> list[str]:
    """The programs of *docstring*, in its order; [] when it has none."""
    return [textwrap.dedent(block).strip() + "\n" for block in _BLOCK.findall(inspect.cleandoc(docstring or "") + "\n")]


def placed(program: str, endpoint: str, suffix: str) -> str:
    """*program* at another *endpoint*, with *suffix* behind each of NAMES."""
    names = "|".join(NAMES.values())
    return re.sub(rf"\b({names})\b", rf"\1{suffix}", program.replace(ENDPOINT, endpoint))


def shown(program: str) -> list[str]:
    """The lines that *program* says it prints."""
    return [line.strip() for line in _SHOWN.findall(program)]


def printed(file: Path) -> list[str]:
    """The lines that the program in *file* prints, run as a script in this process; its error is raised."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(str(file), run_name="__main__")
    return out.getvalue().splitlines()
