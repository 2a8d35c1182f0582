"""How long nobody could send: figures of one outage, from the sends around it. Pure.

     harm                                    times are the loop's, in seconds
      |   .......gap........
     --+--|                 |-----  accepts of all senders together
       |  |                 |
       t0 first effect      t1 first accepted send that was sent after t0

`outage_s` is t1 - t0. t0 is the first moment at which a send was under way that was not accepted as before: one that failed, or whose
2xx came only after the gap; never before the harm. Since a proxy repeats keyed sends by itself, most of these sends never fail, they
are only late, and counting from the first *failed* one would leave out most of the outage. The gap is the longest time without an accept.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from tests.chaos.load import Event


def outage_of(events: Sequence[Event], harm_s: float) -> dict[str, float]:
    """Figures of the outage that the harm at *harm_s* caused; *events* from before it until sends are accepted again."""
    accepted = sorted(event.ended_s for event in events if event.ok)
    before = [at for at in accepted if at <= harm_s]
    after = [at for at in accepted if at > harm_s]
    if not before or not after:
        return {}
    # The replies that the dead had already sent may come a little later than the harm.
    marks = [before[-1], *after]
    gap_s, at = max((later - earlier, number) for number, (earlier, later) in enumerate(pairwise(marks)))
    gap_began_s, gap_ended_s = marks[at], marks[at + 1]
    affected = [
        max(harm_s, event.began_s)
        for event in events
        if event.ended_s > harm_s and (not event.ok or event.ended_s >= gap_ended_s) and event.began_s < gap_ended_s
    ]
    effect_s = min(affected, default=gap_began_s)
    accepted_after = [event.ended_s for event in events if event.ok and event.began_s >= effect_s]
    if not accepted_after:
        return {}
    around = [event for event in events if event.ended_s > harm_s and event.began_s <= gap_ended_s]
    return {
        "outage_s": round(min(accepted_after) - effect_s, 3),
        "gap_s": round(gap_s, 3),
        "harm_to_accept_s": round(gap_ended_s - harm_s, 3),
        "slowest_send_s": round(max((event.ended_s - event.began_s for event in around), default=0.0), 3),
        "failed_sends": sum(not event.ok for event in events if event.ended_s > harm_s),
    }


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median, maximum and count."""
    if not values:
        return {"trials": 0}
    return {"trials": len(values), "median": round(median(values), 3), "max": round(max(values), 3)}
