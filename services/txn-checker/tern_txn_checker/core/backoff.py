"""Pauses that grow: for hosts that fail, and for broker groups that refuse. Pure."""

# 2**20 of any first pause is beyond every longest one.
_DOUBLINGS_MAX = 20


def pause_ms(failures: int, *, first_ms: int, longest_ms: int, chance: float) -> int:
    """The pause after so many *failures* in a row (from 1): doubled each time up to *longest_ms*, and of that half to all by *chance* (0 to 1).

    Chance spreads those that failed together.
    """
    whole_ms = min(longest_ms, first_ms << min(max(failures - 1, 0), _DOUBLINGS_MAX))
    return int(whole_ms * (0.5 + chance / 2))
