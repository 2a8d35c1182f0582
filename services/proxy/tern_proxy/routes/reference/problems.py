"""Explanations of errors, the targets of the `type` of problems: documents for programs, pages for
browsers.
"""

from collections.abc import Callable, Iterable
from html import escape
from string import Formatter

import orjson

from tern_proxy.core.documents.problems import ProblemExplained, ProblemKind, ProblemKinds
from tern_proxy.routes.call import HTML, Call, Page
from tern_proxy.routes.failures import GUARD, SERVER
from tern_proxy.routes.reference.examples import problem_example
from tern_proxy.routes.route import Route
from tern_wire.errors import ERRORS, ProblemNotFound, TernError

# All rows, once they are complete: the routes of this file are among them.
Rows = Callable[[], Iterable[Route]]
_STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}pre{overflow:auto;background:#f4f4f4;padding:1rem}"


def problem_kind(error: type[TernError]) -> ProblemKind:
    """Return *error* as a row of a list."""
    return ProblemKind(code=error.code, status=error.status, title=error.title, retryable=error.retryable)


def explained(error: type[TernError], rows: Iterable[Route]) -> ProblemExplained:
    """Return *error* with those of *rows* that can answer it."""
    everywhere = error in SERVER or error in GUARD
    return ProblemExplained(
        code=error.code,
        status=error.status,
        title=error.title,
        retryable=error.retryable,
        remedy=error.fix,
        fields=sorted({name for _, name, _, _ in Formatter().parse(error.fix) if name}),
        routes=[f"{row.method} {row.path}" for row in rows if error in (row.errors if everywhere else row.failures)],
        everywhere=everywhere,
        example=problem_example(error),
    )


async def list_problems(_: Call) -> ProblemKinds:
    """List all errors by status and code."""
    kinds = sorted(ERRORS.values(), key=lambda error: (error.status, error.code))
    return ProblemKinds(problems=[problem_kind(error) for error in kinds])


async def get_problem(call: Call, problem: str) -> ProblemExplained | Page:
    """Explain an error: its meaning and its remedy. A browser gets a page."""
    error = ERRORS.get(problem)
    if error is None:
        raise ProblemNotFound(problem=problem[:80])
    found = explained(error, call.rows)
    return Page(_page(found)) if call.form == HTML else found


def _page(found: ProblemExplained) -> bytes:
    again = "The same request can succeed later." if found.retryable else "The same request fails again."
    where = "Any route." if found.everywhere else ""
    routes = "".join(f"<li><code>{escape(route)}</code></li>" for route in found.routes)
    example = escape(orjson.dumps(found.example, option=orjson.OPT_INDENT_2).decode())
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(found.code)}</title><style>{_STYLE}</style></head><body>'
        f"<p><code>{found.status} {escape(found.code)}</code></p><h1>{escape(found.title)}</h1><p>{escape(found.remedy)}</p><p>{again}</p>"
        f"<h2>Example</h2><pre>{example}</pre><h2>Answered by</h2><p>{where}</p><ul>{routes}</ul></body></html>"
    ).encode()
