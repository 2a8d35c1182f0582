"""Limits of one connection of a listener, by default those of limits.py; used by connection.py."""

from dataclasses import dataclass

from tern_wire import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Milliseconds, bytes and counts; limits.py has the reasons."""

    connections_max: int = limits.CONNECTIONS_MAX
    strangers_max: int = limits.STRANGERS_MAX
    handshake_max_ms: int = limits.TLS_HANDSHAKE_MAX_MS
    connections_per_address_max: int = limits.CONNECTIONS_PER_ADDRESS_MAX
    requests_max: int = limits.REQUESTS_MAX
    pipelined_max: int = limits.PIPELINED_MAX
    head_deadline_ms: int = limits.HEAD_DEADLINE_MS
    body_deadline_ms: int = limits.BODY_DEADLINE_MS
    body_rate_step_ms: int = limits.BODY_RATE_STEP_MS
    body_wire_size_max_bytes: int = limits.BODY_WIRE_SIZE_MAX_BYTES
    chunks_max: int = limits.CHUNKS_MAX
    answer_step_ms: int = limits.ANSWER_STEP_MS
    head_size_max_bytes: int = limits.REQUEST_HEAD_SIZE_MAX_BYTES
    fields_max: int = limits.REQUEST_FIELDS_MAX
    target_size_max_bytes: int = limits.REQUEST_TARGET_SIZE_MAX_BYTES
    # For the listener of a producer's own service, which is no port of a mesh.
    takes_callbacks: bool = False
