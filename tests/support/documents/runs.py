"""The run of one page: its blocks in one shell, in order, against a running mesh, and what each of them printed."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.documents.answers import mismatch
from tests.support.documents.pages import Block, blocks

# What the shell of a reader has anyway; and a request that is refused is a failure of its block.
PREAMBLE = """set -euo pipefail
ternmq() { "$TERNMQ_PYTHON" -m tern_cli "$@"; }
curl() { local status=0; command curl --fail-with-body "$@" || status=$?; echo; return $status; }
"""
# Separates the outputs of blocks (ASCII's record separator).
MARK = "\x1e"
# On two quiet cores the longest page takes a tenth of it; a machine may be four times slower, and busy.
RUN_MAX_S = 400


@dataclass(frozen=True, slots=True)
class Ran:
    """One block that was to run, its answer if the page shows one, and what it printed; *printed* None: not reached."""

    block: Block
    answer: Block | None
    printed: str | None


@dataclass(frozen=True, slots=True)
class PageRun:
    """All blocks of a page; *stderr* is that of the whole page."""

    ran: tuple[Ran, ...]
    status: int
    stderr: str

    def failures(self) -> list[str]:
        """What went wrong, one sentence each."""
        found = []
        for number, each in enumerate(self.ran):
            is_last = number + 1 == len(self.ran) or self.ran[number + 1].printed is None
            if each.printed is None or (is_last and self.status):
                printed = each.printed or ""
                found.append(f"{each.block.place}: exit {self.status}\n{printed}\n{self.stderr[-2000:]}")
                break
            if each.answer is not None:
                wrong = mismatch(each.answer.language, each.answer.text, each.printed)
                found += [f"{each.answer.place}: {wrong}"] if wrong else []
        return found


def runnable(page: Path) -> list[tuple[Block, Block | None]]:
    """The blocks of *page* that run, each with the answer that follows it."""
    found: list[tuple[Block, Block | None]] = []
    for block in blocks(page):
        if "run" in block.marks:
            found.append((block, None))
        elif "answer" in block.marks:
            assert found and found[-1][1] is None, f"{block.place}: answers no block"
            found[-1] = (found[-1][0], block)
    return found


def step(block: Block, answer: Block | None, file: Path, replaced: Mapping[str, str]) -> str:
    """The part of the script that runs *block*; a program is written to *file*."""
    text = block.text
    for shown, real in replaced.items():
        text = text.replace(shown, real)
    if block.language == "python":
        file.write_text(text, "utf-8")
        if "Ctrl-C" not in block.marks:
            return f'"$TERNMQ_PYTHON" {file.name}\n'
        assert answer is not None, f"{block.place}: without an answer nothing says when to press Ctrl-C"
        lines = len(answer.text.splitlines())
        return f'"$TERNMQ_PYTHON" -m tests.support.documents.interrupted {file.name} {lines}\n'
    if "fails" in block.marks:
        return f'set +e\n{text}\nstatus=$?\nset -e\n[ "$status" -ne 0 ]\n'
    return text


def run_page(page: Path, directory: Path, replaced: Mapping[str, str], environment: Mapping[str, str]) -> PageRun:
    """Run *page* in *directory*, with the addresses in *replaced* instead of those that it names."""
    directory.mkdir(parents=True, exist_ok=True)
    parts = runnable(page)
    script = PREAMBLE
    for number, (block, answer) in enumerate(parts):
        script += f"printf '{MARK}'\n" + step(block, answer, directory / f"program_{number}.py", replaced)
    root = Path(__file__).resolve().parents[3]
    paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": paths,
            "TERNMQ_PYTHON": sys.executable,
            "TZ": "UTC",
            "HOME": str(directory),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
        check=False,
    )
    printed: list[str | None] = [*done.stdout.split(MARK)[1:]]
    printed += [None] * (len(parts) - len(printed))
    ran = tuple(Ran(block, answer, out) for (block, answer), out in zip(parts, printed, strict=True))
    return PageRun(ran, done.returncode, done.stderr)


def addresses(port_base: int) -> dict[str, str]:
    """The default ports of the pages, and those of a mesh that was started with `--port-base`."""
    ports = {8080: 0, 9876: 10, 10911: 20, 10912: 21, 10913: 22, 10923: 32, 10933: 42}
    return {f"127.0.0.1:{shown}": f"127.0.0.1:{port_base + at}" for shown, at in ports.items()}


def unreached(page: Path) -> list[str]:
    """Blocks of a shell or of Python that neither run nor say why not."""
    return [
        block.place
        for block in blocks(page)
        if block.language in {"sh", "python"} and "run" not in block.marks and not re.match(r"[a-z]+$", block.reason)
    ]
