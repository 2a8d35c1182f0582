"""The course of a call (attempts, pauses, the next proxy) as a generator that never waits itself.
Pure.

A shell drives the generator: it does each step and sends back the outcome. The async and the
blocking client are two such shells.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from tern_client.transport.endpoints import Endpoints
from tern_client.transport.exchange import Headers, ProxyUnreachable, Request, Response, error_of
from tern_client.transport.retrying import RetryPolicy, decide
from tern_wire.errors import OutcomeUnknown, TernError
from tern_wire.names import check_namespace
from tern_wire.paths import HEADER_NAMESPACE

# The proxy's own time to answer, added to the time for which it may park a request.
PARK_MARGIN_MS = 5_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """Send *request* to *endpoint*; the answer is due in *timeout_ms*."""

    endpoint: str
    request: Request
    timeout_ms: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for `delay_ms`."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Work:
    """Call *run*, which takes the time of some *size_bytes* of compression; an async shell does
    much of it in a thread. *run* keeps its result itself, and its errors are raised.
    """

    run: Callable[[], None]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step, and when it ended (milliseconds of any monotonic clock). A pause and
    work have no result.
    """

    result: Response | TernError | None
    now_ms: float


Step = Attempt | Pause | Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Settings that all calls of a client share: endpoints, patience, a source of chance in [0, 1),
    and headers of every request.
    """

    endpoints: Endpoints
    policy: RetryPolicy
    chance: Callable[[], float]
    headers: Headers = ()


def namespace_headers(namespace: str) -> Headers:
    """Return the headers of every request of a client in *namespace* ("": none); InvalidField."""
    return ((HEADER_NAMESPACE, check_namespace(namespace, "/namespace")),) if namespace else ()


def call(course: Course, request: Request, began_ms: float) -> Generator[Step, Outcome, Response]:
    """Return the steps of *request* until a response below 400; raises the TernError that ended it.

    An unknown outcome of a send or a change stays unknown. When later attempts could not be made,
    or were refused for now until the deadline, OutcomeUnknown is raised and not the last error,
    which says that nothing was stored.
    """
    policy, now_ms = course.policy, began_ms
    if course.headers:
        request = replace(request, headers=(*request.headers, *course.headers))
    unknown: TernError | None = None
    unreached: ProxyUnreachable | None = None
    attempt = 0
    while True:
        endpoint = course.endpoints.current
        left_ms = max(policy.deadline_ms - (now_ms - began_ms), 1.0)
        timeout_ms = min(policy.attempt_timeout_ms, left_ms)
        if request.wait_ms:
            timeout_ms = request.wait_ms + PARK_MARGIN_MS
        outcome = yield Attempt(endpoint, request, timeout_ms)
        now_ms = outcome.now_ms
        assert outcome.result is not None
        error = outcome.result if isinstance(outcome.result, TernError) else error_of(outcome.result, endpoint)
        if error is None:
            assert not isinstance(outcome.result, TernError)
            return outcome.result
        if isinstance(error, OutcomeUnknown) and request.method != "GET" and (request.stores or not request.wait_ms):
            unknown = error
        is_cut = left_ms < policy.attempt_timeout_ms and not request.wait_ms
        if isinstance(error, ProxyUnreachable):
            # An attempt with less than its full time fails only for being late. The error of the
            # attempt before it gives the reason.
            error = unreached = (is_cut and unreached) or error
        verdict = decide(
            error,
            attempt=attempt,
            endpoints=len(course.endpoints.urls),
            elapsed_ms=now_ms - began_ms,
            repeatable=request.repeatable,
            chance=course.chance(),
            policy=policy,
        )
        if verdict.next_endpoint:
            course.endpoints.leave(endpoint)
        if not verdict.repeat:
            raise unknown if unknown and error.retryable else error
        if verdict.delay_ms:
            now_ms = (yield Pause(verdict.delay_ms)).now_ms
        attempt += 1
