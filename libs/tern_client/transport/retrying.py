"""Whether a failed request is repeated, where, and after which pause. Pure: chance and time are arguments."""

from dataclasses import dataclass

from tern_client.transport.exchange import ProxyUnreachable
from tern_wire.errors import OutcomeUnknown, ReplyTimeout, RequestTimeout, ShuttingDown, TernError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How patient a client is. All times in ms; `deadline_ms` counts from the first attempt."""

    deadline_ms: int = 30_000
    attempt_timeout_ms: int = 10_000
    first_delay_ms: int = 25
    max_delay_ms: int = 2_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows a failure: give up, or pause and repeat, at the next proxy if this one is the trouble."""

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
    """What to do after *error* of the 0-based *attempt*. *chance* in [0, 1) spreads clients that failed together.

    Every error that says "nothing was stored" is repeated; one that leaves it open only when repeating is harmless.
    """
    if isinstance(error, ReplyTimeout):
        # It has waited as long as it was to; who wants more asks for the reply, not for the request.
        return GIVE_UP
    if not error.retryable or (isinstance(error, OutcomeUnknown) and not repeatable):
        return GIVE_UP
    next_endpoint = (
        isinstance(error, ProxyUnreachable | ShuttingDown | OutcomeUnknown | RequestTimeout) or error.status == 503
    )
    if next_endpoint and attempt + 1 < endpoints:
        # Every proxy gets its first chance at once.
        return Verdict(elapsed_ms < policy.deadline_ms, 0, next_endpoint=True)
    rounds = min(attempt // max(endpoints, 1), 16)
    delay_ms = min(policy.first_delay_ms * 2**rounds, policy.max_delay_ms) * (0.5 + chance / 2)
    delay_ms = max(delay_ms, asked_delay_ms(error) * (1 + chance / 4))
    if elapsed_ms + delay_ms >= policy.deadline_ms:
        return GIVE_UP
    return Verdict(repeat=True, delay_ms=round(delay_ms), next_endpoint=next_endpoint)


def asked_delay_ms(error: TernError) -> float:
    """The pause the proxy asked for, at most a minute; 0 when it did not."""
    asked = error.fields.get("retry_after_ms", 0)
    return min(max(float(asked), 0.0), 60_000.0) if isinstance(asked, int | float) else 0.0
