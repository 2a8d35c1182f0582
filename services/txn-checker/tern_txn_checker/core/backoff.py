"""Exponential pauses: for hosts that fail, and for broker groups that refuse. Pure."""

# 2**20 times any first pause exceeds every longest pause.
_DOUBLINGS_MAX = 20


def pause_ms(failures: int, *, first_ms: int, longest_ms: int, chance: float) -> int:
    """Return the pause in ms after *failures* in a row (from 1).

    The pause doubles with each failure up to *longest_ms*. *chance* (0 to 1) scales it from a half
    to the whole, which spreads callers that failed together.
    """
    whole_ms = min(longest_ms, first_ms << min(max(failures - 1, 0), _DOUBLINGS_MAX))
    return int(whole_ms * (0.5 + chance / 2))
