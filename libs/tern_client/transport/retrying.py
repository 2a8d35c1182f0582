"""Whether a failed request is repeated, at which proxy, and after which pause. Pure: chance and
time are arguments.
"""

from dataclasses import dataclass

from tern_client.transport.exchange import ProxyUnreachable
from tern_wire.errors import OutcomeUnknown, ReplyTimeout, RequestTimeout, ShuttingDown, TernError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long a client tries, in milliseconds. A call that cannot succeed within `deadline_ms`
    raises its last error.

    - `deadline_ms`: from the first attempt of a call to its last.
    - `attempt_timeout_ms`: the wait for one answer. A long poll has its own wait instead.
    - `first_delay_ms`, `max_delay_ms`: pauses between rounds of attempts; they double, and half of
      each is random.

    Example:

        from tern_client import BlockingProducer, RetryPolicy

        patient = RetryPolicy(deadline_ms=120_000, attempt_timeout_ms=5_000)
        with BlockingProducer("http://127.0.0.1:8080", policy=patient) as producer:
            print(producer.send("orders", b"hello").offset)  # -> 0
    """

    deadline_ms: int = 30_000
    attempt_timeout_ms: int = 10_000
    first_delay_ms: int = 25
    max_delay_ms: int = 2_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows a failure: give up, or repeat after a pause; at the next proxy if this one is at
    fault.
    """

    repeat: bool
    delay_ms: int = 0
    next_endpoint: bool = False


GIVE_UP = Verdict(repeat=False)


def decide(
    error: TernError,
    *,
    attempt: int,
    endpoints: int,
    elapsed_ms: float,
    repeatable: bool,
    chance: float,
    policy: RetryPolicy,
) -> Verdict:
    """Decide what follows *error* of the 0-based *attempt*. *chance* in [0, 1) spreads clients that
    failed together.

    Errors that say "nothing was stored" are repeated. After an unknown outcome only a *repeatable*
    request is.
    """
    if isinstance(error, ReplyTimeout):
        # The request has waited for its full time. The reply can still be requested, without the
        # request being sent again.
        return GIVE_UP
    if not error.retryable or (isinstance(error, OutcomeUnknown) and not repeatable):
        return GIVE_UP
    next_endpoint = (
        isinstance(error, ProxyUnreachable | ShuttingDown | OutcomeUnknown | RequestTimeout) or error.status == 503
    )
    if next_endpoint and attempt + 1 < endpoints:
        # Each proxy is tried once before the first pause.
        return Verdict(elapsed_ms < policy.deadline_ms, 0, next_endpoint=True)
    rounds = min(attempt // max(endpoints, 1), 16)
    delay_ms = min(policy.first_delay_ms * 2**rounds, policy.max_delay_ms) * (0.5 + chance / 2)
    delay_ms = max(delay_ms, asked_delay_ms(error) * (1 + chance / 4))
    if elapsed_ms + delay_ms >= policy.deadline_ms:
        return GIVE_UP
    return Verdict(repeat=True, delay_ms=round(delay_ms), next_endpoint=next_endpoint)


def asked_delay_ms(error: TernError) -> float:
    """Return the pause that the proxy requested, at most a minute; 0 when it requested none."""
    asked = error.fields.get("retry_after_ms", 0)
    return min(max(float(asked), 0.0), 60_000.0) if isinstance(asked, int | float) else 0.0
