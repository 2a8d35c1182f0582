"""Handler for plans of reads."""

from tern_proxy.core.documents.reads import ReadPlan, ReadPlanRequest
from tern_proxy.core.reading.plans import check_plan, parts_of, put_together
from tern_proxy.core.sending.parameters import time_of
from tern_proxy.routes.call import Call
from tern_proxy.routes.fan_out import ask_named
from tern_wire.limits import JSON_BATCH_NODES_MAX
from tern_wire.limits_reads import READ_BODY_SIZE_MAX_BYTES
from tern_wire.principals.principals import DESCRIBE, TOPIC


async def post_read_plan(call: Call) -> ReadPlan:
    """Return oldest and next offset of every queue of any number of topics, and what their messages
    take on disk.

    With `sizes`, `size_bytes` is the exact sum of the records from `begin` to `measured_to`, and
    `cuts` divide this range into parts of at most `step_bytes`. A broker group sums up some
    millions of messages for one request, an equal part for each queue; where `is_complete` is
    false, continue with `begin` at `measured_to`. Nothing is changed: a range is kept only by a
    read lease.
    """
    asked = await call.read(ReadPlanRequest, size_max_bytes=READ_BODY_SIZE_MAX_BYTES, nodes_max=JSON_BATCH_NODES_MAX)
    check_plan(asked)
    topics = []
    for each in asked.topics:
        name = call.topic(each.topic)
        call.admission.require(DESCRIBE, TOPIC, name)
        topics.append(await call.proxy.topic(name))
    parts = parts_of(asked, topics, time_of)
    return put_together(topics, parts, dict(await ask_named(call.proxy, parts)))
