"""One callback: a signed request to a producer's URL, at a checked address, and its answer.

    require_allowed (once a URL) -> resolve once -> require_address for every address
        -> connect to the first that answers -> sign, with a nonce -> send the request
        -> check the answer's signature -> read the answer

Connections are kept alive and reused, a few for each host. An address is checked when its
connection is made, and no connection is older than a minute.

Owner of the connections: this object, which has their pool. References: Standard Webhooks,
symmetric signatures; CloudEvents over HTTP, structured mode.
"""

import asyncio
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from standardwebhooks import Webhook
from standardwebhooks.webhooks import EmptyWebhookSecretError

from tern_http.connection import HttpConnection, connect
from tern_http.exchange import AnswerTooLarge, BrokenOff, HttpAnswer, NoHttp
from tern_http.pool import Pool
from tern_service.clock import Clock
from tern_txn_checker.core.answers import (
    ANSWER_SIZE_MAX_BYTES,
    BROKEN,
    FORBIDDEN,
    NO_ADDRESS,
    NO_HTTP,
    NO_SECRET,
    REFUSED,
    TIMEOUT,
    TLS,
    TOO_LARGE,
    UNREACHABLE,
    UNSIGNED,
    WRONG_SIGNATURE,
    Answer,
    no_answer,
    read_answer,
)
from tern_txn_checker.core.schedule import Check
from tern_wire.checks.answers import NONCE_SIZE_BYTES, is_signed
from tern_wire.checks.urls import CheckHosts, CheckUrl
from tern_wire.errors import CheckUrlForbidden
from tern_wire.paths import HEADER_CHECK_NONCE, HEADER_CHECK_SIGNATURE

logger = logging.getLogger(__name__)

# Servers close idle connections after 5 to 75 s. After a connection's lifetime the host's name is
# resolved again.
CONNECTION_LIFE_S = 60.0
CONNECTION_IDLE_S = 4.0
# Idle connections of all hosts together: descriptors that are not in use.
IDLE_MAX = 256
# At most so many addresses of one host are tried, each for its share of the time.
ADDRESSES_TRIED_MAX = 4


class Addresses(Protocol):
    """A resolver of host names."""

    def addresses(self, name: str) -> Awaitable[list[str]]:
        """Return every address of *name*; OSError when it has none."""
        ...


class Callbacks:
    """Makes callbacks to the hosts that *hosts* allows.

    *ca_file*: certificates to trust beside the machine's own, None for none.
    """

    def __init__(self, *, hosts: CheckHosts, resolver: Addresses, clock: Clock, ca_file: Path | None = None) -> None:
        self._hosts, self._resolver, self._clock, self._ca_file = hosts, resolver, clock, ca_file
        self._pool = Pool(idle_max=IDLE_MAX, idle_s=CONNECTION_IDLE_S, life_s=CONNECTION_LIFE_S)
        self._tls: ssl.SSLContext | None = None

    async def ask(self, check: Check, timeout_ms: int) -> Answer:
        """Return the answer of the producer of *check* within *timeout_ms*, everything included.

        Raises nothing but CancelledError.
        """
        try:
            signature_headers = self._sign(check)
        except (ValueError, EmptyWebhookSecretError):
            return Answer(NO_SECRET)
        nonce = secrets.token_hex(NONCE_SIZE_BYTES)
        request = _request(check, f"{signature_headers}{HEADER_CHECK_NONCE}: {nonce}\r\n")
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                found = await self._exchange(check.url, request, timeout_ms)
        except TimeoutError:
            return no_answer(TIMEOUT)
        except CheckUrlForbidden as error:
            logger.warning("a callback is not allowed", extra={"host": check.url.host, "reason": error.detail})
            return Answer(FORBIDDEN)
        except ssl.SSLError as error:
            logger.info("a producer's TLS failed", extra={"host": check.url.host, "reason": str(error)})
            return no_answer(TLS)
        except ConnectionRefusedError:
            return no_answer(REFUSED)
        except _NoAddress:
            return no_answer(NO_ADDRESS)
        except OSError:
            return no_answer(UNREACHABLE)
        except BrokenOff:
            return no_answer(BROKEN)
        except NoHttp:
            return no_answer(NO_HTTP)
        except AnswerTooLarge:
            return Answer(TOO_LARGE)
        # Only an answer that could count needs a signature: redirects, refusals and faults come
        # from servers that do not have the secret.
        if found.status == 200 and (doubt := _doubt_about(found, check, nonce)):
            logger.warning(
                "a callback's answer does not count: it is not signed by its producer group",
                extra={"host": check.url.host, "transaction": check.transaction_id, "reason": doubt},
            )
            return Answer(doubt)
        return read_answer(found.status, found.body)

    def close(self) -> None:
        """Close all connections; those in use close after their answer."""
        self._pool.close()

    # Signing --------------------------------------------------------------------------------------
    def _sign(self, check: Check) -> str:
        now_s = self._clock.now_ms() // 1_000
        # In UTC: the library takes the local time of day as if it were UTC.
        signature = _webhook(check.secret).sign(
            check.transaction_id, datetime.fromtimestamp(now_s, UTC), check.body.decode()
        )
        return f"webhook-id: {check.transaction_id}\r\nwebhook-timestamp: {now_s}\r\nwebhook-signature: {signature}\r\n"

    # Connections ----------------------------------------------------------------------------------
    async def _exchange(self, url: CheckUrl, request: bytes, timeout_ms: int) -> HttpAnswer:
        # A request that met a closed connection did not reach the producer, and a repeated one is
        # harmless.
        return await self._pool.exchange(
            (url.scheme, url.host, url.port), request, lambda: self._connect(url, timeout_ms)
        )

    async def _connect(self, url: CheckUrl, timeout_ms: int) -> HttpConnection:
        addresses = await self._checked_addresses(url)
        share_s = timeout_ms / 1_000 / len(addresses)
        failure: OSError = _NoAddress()
        for address in addresses:
            try:
                async with asyncio.timeout(share_s):
                    return await connect(
                        address,
                        url.port,
                        server_name=url.host,
                        tls=self._tls_context() if url.scheme == "https" else None,
                        body_size_max_bytes=ANSWER_SIZE_MAX_BYTES,
                    )
            except OSError as error:  # TimeoutError and failures of TLS are OSErrors, too
                failure = error
        raise failure

    async def _checked_addresses(self, url: CheckUrl) -> list[str]:
        """Return the addresses to connect to, resolved now and once.

        CheckUrlForbidden when one of them is not allowed.
        """
        if url.address is not None:
            found = [url.host]
        else:
            try:
                found = await self._resolver.addresses(url.host)
            except OSError as error:
                raise _NoAddress from error
        for address in found:
            self._hosts.require_address(url, address)
        if not found:
            raise _NoAddress
        return found[:ADDRESSES_TRIED_MAX]

    def _tls_context(self) -> ssl.SSLContext:
        """The TLS context, made at the first https callback: the certificates take some MB."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
            if self._ca_file is not None:
                self._tls.load_verify_locations(self._ca_file)
        return self._tls


class _NoAddress(OSError):
    """The host's name has no address."""


def _doubt_about(answer: HttpAnswer, check: Check, nonce: str) -> str:
    """Return the reason why *answer* is not provably the producer group's answer to this check.

    "" when its signature holds.
    """
    signature = answer.headers.get(HEADER_CHECK_SIGNATURE.lower(), "")
    if not signature:
        return UNSIGNED
    is_ours = is_signed(signature, check.secret, nonce, check.transaction_id, answer.body)
    return "" if is_ours else WRONG_SIGNATURE


@lru_cache(maxsize=1_024)
def _webhook(secret: str) -> Webhook:
    return Webhook(secret)


def _request(check: Check, signature_headers: str) -> bytes:
    url = check.url
    head = (
        f"POST {url.path} HTTP/1.1\r\nHost: {url.authority}\r\nUser-Agent: TernMQ\r\nAccept: application/json\r\n"
        f"Content-Type: application/cloudevents+json\r\nContent-Length: {len(check.body)}\r\n{signature_headers}\r\n"
    )
    return head.encode("ascii") + check.body


Ask = Callable[[Check, int], Awaitable[Answer]]
