"""The course of a call (attempts, pauses, the next proxy) as a generator that never waits itself. Pure.

A shell drives it: it does what each step says and sends back how that went. The async and the blocking client are two such shells.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from tern_client.exchange import Request, Response, error_of
from tern_client.retrying import RetryPolicy, decide
from tern_wire.errors import TernError

# Beyond what the proxy may park a request: its own time to answer.
PARK_MARGIN_MS = 5_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """Send *request* to *endpoint*; the answer is due in *timeout_ms*."""

    endpoint: str
    request: Request
    timeout_ms: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step went, and when it ended (ms of any monotonic clock). A pause has no result."""

    result: Response | TernError | None
    now_ms: float


Step = Attempt | Pause


class Endpoints:
    """The proxies of a cluster and which one is used now. Owned by one client; a failure moves all its calls on together."""

    __slots__ = ("_at", "urls")

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ValueError("at least one endpoint is needed, such as http://127.0.0.1:8080")
        self.urls = tuple(url.rstrip("/") for url in urls)
        self._at = 0

    @property
    def current(self) -> str:
        """Where the next request goes."""
        return self.urls[self._at]

    def leave(self, failed: str) -> None:
        """Go to the next one, unless another call has already left *failed*."""
        if self.current == failed:
            self._at = (self._at + 1) % len(self.urls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What every call of a client shares: where to, how patient, and its source of chance in [0, 1)."""

    endpoints: Endpoints
    policy: RetryPolicy
    chance: Callable[[], float]


def call(course: Course, request: Request, began_ms: float) -> Generator[Step, Outcome, Response]:
    """The steps of *request* until a response below 400; raises the TernError that ended it."""
    policy, now_ms = course.policy, began_ms
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
        error = error_of(outcome.result, endpoint) if isinstance(outcome.result, Response) else outcome.result
        if error is None:
            assert isinstance(outcome.result, Response)
            return outcome.result
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
            raise error
        if verdict.delay_ms:
            now_ms = (yield Pause(verdict.delay_ms)).now_ms
        attempt += 1
