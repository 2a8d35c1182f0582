"""`python -m tests.contract`: the live HTTP API against its own document, with generated requests. `make contract`.

Each operation gets its share of the cases: half of them as the document allows, half of them not. An answer may be any status that the operation
documents, with a body and headers as it says; a 500 never. What is generated is random by the seed, which is printed; the curl of each finding
tries it again. Progress goes to standard error; the last line is JSON. Exit code 1 when something was found.

Reference: schemathesis (checks and generation).
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from rich.console import Console
from rich.progress import Progress
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS, CheckFunction
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation

from tests.contract.forms import curl, readable
from tests.contract.living import Living
from tests.support.mesh.mesh import Mesh, free_port_base, kept_up
from tests.support.time_limit import TimeLimit, add_within

AnyOperation = APIOperation[Any, Any, Any, Any]
AnyCase = Case[Any]
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
# What a mesh says that has too much to do, or whose leader is being elected: documented, and no fault.
BUSY = frozenset({503, 504})
MAKE_EVERY_CASES = 25
SHOWN_MAX = 40


class Run:
    """One run. Owner of what was found: by operation, check and first line, with a curl."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self._url = url
        self._session = requests.Session()
        self.living = Living(url, rng)
        self.checks = cast(list[CheckFunction], CHECKS.get_by_names(list(CHECKED)))
        self.statuses: Counter[int] = Counter()
        self.found: dict[tuple[str, str, str], str] = {}
        self.cases = 0

    def try_one(self, operation: AnyOperation, case: AnyCase) -> None:
        """Send *case* and look at the answer."""
        if self.cases % MAKE_EVERY_CASES == 0:
            self.living.make()
        self.cases += 1
        self.living.put_into(case)
        try:
            response = case.call(base_url=self._url, session=self._session, timeout=60)
        except requests.exceptions.RequestException as error:
            self._note(operation, case, type(error).__name__, str(error)[:200])
            return
        self.statuses[response.status_code] += 1
        checks = self.checks
        if response.status_code in BUSY:
            checks = [check for check in checks if check.__name__ != "not_a_server_error"]
        try:
            case.validate_response(response, checks=checks)
        except FailureGroup as group:
            for failure in group.exceptions:
                self._note(operation, case, type(failure).__name__, _told(failure, response))

    def _note(self, operation: AnyOperation, case: AnyCase, kind: str, text: str) -> None:
        self.found.setdefault((operation.label, kind, text), curl(case))


def _told(failure: Failure, response: schemathesis.Response) -> str:
    code = ""
    with contextlib.suppress(ValueError, AttributeError):
        code = response.json().get("code", "")
    first = failure.message.strip().splitlines()[0] if failure.message else failure.title
    return f"{response.status_code} {code}: {first}"[:240]


def tested(run: Run, operation: AnyOperation, mode: GenerationMode, cases: int, number: int) -> None:
    """Send *cases* of them."""

    @seed(number)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: AnyCase) -> None:
        run.try_one(operation, case)

    send()


def contract(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """All operations at *url*."""
    document = httpx.get(f"{url}/openapi.json", timeout=30).json()
    schema = schemathesis.openapi.from_dict(readable(document))
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    if len(operations) != sum(map(len, document["paths"].values())):
        raise ValueError("schemathesis cannot read a part of the document")
    if options.only:
        operations = [each for each in operations if each.definition.raw["operationId"] in options.only]
    run = Run(url, random.Random(options.seed))
    share = max(1, options.cases // (2 * len(operations)))
    limit = TimeLimit(options.within)
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("operations", total=2 * len(operations))
        for at, operation in enumerate(operations):
            cases = limit.share(share, run.cases // 2, len(operations) - at)
            before, begun = run.cases, time.monotonic()
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                if mode is GenerationMode.NEGATIVE and not _can_be_wrong(operation):
                    continue
                tested(run, operation, mode, cases, options.seed)
                progress.advance(task)
            if not console.is_terminal:
                print(f"  {operation.label}: {run.cases - before} in {time.monotonic() - begun:.1f} s", file=sys.stderr)
    run.living.close()
    return {
        "seed": options.seed,
        "operations": len(operations),
        "cases": run.cases,
        "of": options.cases,
        "seconds": round(limit.elapsed_s, 1),
        "statuses": {str(status): count for status, count in sorted(run.statuses.items())},
        "found": [
            {"operation": label, "check": kind, "text": text, "curl": command}
            for (label, kind, text), command in run.found.items()
        ],
    }


def _can_be_wrong(operation: AnyOperation) -> bool:
    """Whether anything of it can be against the document."""
    return any(operation.iter_parameters()) or bool(operation.body)


def main() -> int:
    """A mesh of its own, unless it is told of one."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="of all operations together (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what is generated (%(default)s)")
    parser.add_argument("--only", nargs="*", metavar="OPERATION", help="these alone, by their operationId")
    parser.add_argument("--url", help="a proxy that runs already; everything in it may be changed or deleted")
    add_within(parser)
    options = parser.parse_args()
    if options.url:
        told = contract(options.url, options)
    else:
        with tempfile.TemporaryDirectory(prefix="contract-") as folder:
            own = ("--brokers", "1", "--checkers", "0")
            mesh = Mesh(Path(folder) / "mesh", port_base=free_port_base(random.Random()), options=own)
            with kept_up(mesh):
                told = contract(mesh.endpoint, options)
    for each in told["found"][:SHOWN_MAX]:
        print(f"{each['operation']}: {each['check']}: {each['text']}\n    {each['curl'][:600]}")
    print(json.dumps({**told, "found": len(told["found"])}))
    return bool(told["found"])


if __name__ == "__main__":
    sys.exit(main())
