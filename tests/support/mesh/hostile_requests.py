"""Requests that no server may take, as generated tables: smuggling, traversal, bombs, slow clients. Bytes only; who sends them is elsewhere.

Each case is refused with one 4xx, or its connection is closed. Behind those that smuggle stands a send to the topic `hostile`: were it
taken, its message would be there.
The tables are one thing: whoever wants to know what is thrown reads them from top to bottom.
Reference: RFC 9112 11.2; the shapes are those of published request smuggling, chunk extension and path normalisation faults.
"""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import msgspec

TOPIC = "hostile"
SEND = b"/v1/topics/hostile/messages"
# What a smuggler wants to be read as a request of its own.
SMUGGLED = b"POST " + SEND + b" HTTP/1.1\r\nHost: mesh\r\nContent-Length: 8\r\n\r\nsmuggled"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
EMPTY_CHUNKS = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """*parts* are sent one after the other; with *pause_ms* between them, again and again the last one, until the server has had enough."""

    family: str
    name: str
    parts: tuple[bytes, ...]
    pause_ms: int = 0
    answers_max: int = 1


def head(*lines: bytes, method: bytes = b"POST", target: bytes = SEND, host: bytes = b"Host: mesh\r\n") -> bytes:
    """A head that ends; *lines* end themselves."""
    return method + b" " + target + b" HTTP/1.1\r\n" + host + b"".join(lines) + b"\r\n"


def _named(family: str, rows: Iterator[tuple[object, bytes]]) -> list[Case]:
    return [
        Case(family=family, name=f"{family} {number}: {str(name)[:60]}", parts=(data,))
        for number, (name, data) in enumerate(rows)
    ]


# Framing ----------------------------------------------------------------------------------------------------------
_CODINGS = (
    b"chunked", b"Chunked", b" chunked", b"\tchunked", b"chunked ", b"xchunked", b"chunked, identity", b"identity, chunked",
    b"gzip, chunked", b"chunked;q=1", b'"chunked"', b"chunked,chunked", b"chun\tked", b"identity", b"gzip", b"", b"chunked\x0b",
    b"\x0cchunked", b"chunked,", b",chunked", b"deflate", b"compress, chunked", b"CHUNKED, gzip", b"none",
)  # fmt: skip
_LENGTHS = (
    b"+8", b"-8", b"0x8", b"8,8", b"8, 8", b"8, 9", b"8 8", b"8.0", b"8e0", b"", b"1_0", b"\xef\xbc\x98", b"\xd9\xa8", b"8\x0b", b"\x0c8",
    b"18446744073709551617", b"99999999999999999999999999", b"0b1", b"eight", b"8;", b"8\x00", b"'8'", b"NaN", b"8 bytes", b"--8", b"8-",
)  # fmt: skip
_TRANSFER_NAMES = (
    b"Transfer-Encoding ",
    b"Transfer-Encoding\t",
    b" Transfer-Encoding",
    b"Transfer_Encoding\x00",
    b"Transfer-Encoding\x0b",
)


def framing() -> list[Case]:
    """Two lengths, lengths that are none, codings that are none: where does the body end?"""

    def rows() -> Iterator[tuple[object, bytes]]:
        for coding in _CODINGS:
            both = (b"Content-Length: 5\r\n", b"Transfer-Encoding: " + coding + b"\r\n")
            yield ("length, then", coding), head(*both) + EMPTY_CHUNKS + SMUGGLED
            yield ("length behind", coding), head(*both[::-1]) + EMPTY_CHUNKS + SMUGGLED
            if coding.strip().lower() != b"chunked":
                yield ("alone", coding), head(both[1]) + EMPTY_CHUNKS + SMUGGLED
        for length in _LENGTHS:
            yield ("length", length), head(b"Content-Length: " + length + b"\r\n") + SMUGGLED
            yield ("twice", length), head(b"Content-Length: 8\r\nContent-Length: " + length + b"\r\n") + SMUGGLED
        for first, second in product((b"0", b"8", b"008"), (b"8", b"0", b"99")):
            yield (
                (first, second),
                head(b"Content-Length: " + first + b"\r\ncontent-length: " + second + b"\r\n") + SMUGGLED,
            )
        for name in _TRANSFER_NAMES:
            yield name, head(b"Content-Length: 5\r\n" + name + b": chunked\r\n") + EMPTY_CHUNKS + SMUGGLED
        for twice in (b"chunked", b"identity", b"gzip", b"xchunked"):
            yield (
                ("coding twice", twice),
                head(CHUNKED, b"Transfer-Encoding: " + twice + b"\r\n") + EMPTY_CHUNKS + SMUGGLED,
            )
            yield (
                ("coding behind", twice),
                head(b"Transfer-Encoding: " + twice + b"\r\n", CHUNKED) + EMPTY_CHUNKS + SMUGGLED,
            )
        old = b"POST " + SEND + b" HTTP/1.0\r\nHost: mesh\r\n"
        yield "HTTP/1.0 in chunks", old + CHUNKED + b"\r\n" + EMPTY_CHUNKS + SMUGGLED
        yield "HTTP/1.0 and kept", old + CHUNKED + b"Connection: keep-alive\r\n\r\n" + EMPTY_CHUNKS + SMUGGLED

    return _named("framing", rows())


# Lines ------------------------------------------------------------------------------------------------------------
def lines() -> list[Case]:
    """Folded lines, line ends of one character, names and values with what no name or value has."""

    def rows() -> Iterator[tuple[object, bytes]]:
        for name, blank in product(
            (b"X", b"Content-Length", b"Transfer-Encoding", b"Host", b"MQ-Tag", b"Cookie"), (b" ", b"\t", b"  \t")
        ):
            yield ("folded", name, blank), head(name + b": a\r\n" + blank + b"b\r\n") + SMUGGLED
        for end in (b"\n", b"\r", b"\n\r", b"\r\r\n", b"\n\n"):
            yield ("line end", end), head(b"X: a" + end + b"Content-Length: 0\r\n") + SMUGGLED
            yield ("request line end", end), b"POST " + SEND + b" HTTP/1.1" + end + b"Host: mesh\r\n\r\n" + SMUGGLED
            yield ("head end", end), b"POST " + SEND + b" HTTP/1.1\r\nHost: mesh\r\nX: a\r\n" + end + SMUGGLED
        for at in (
            b" ",
            b"\t",
            b"\x00",
            b"\x0b",
            b"\x0c",
            b"\x7f",
            b"(",
            b")",
            b"@",
            b",",
            b";",
            b"\\",
            b'"',
            b"/",
            b"[",
            b"]",
            b"?",
            b"=",
            b"{",
            b"}",
            b"\x80",
            b"\xc3\xa9",
        ):
            yield ("in a name", at), head(b"Content-Le" + at + b"ngth: 0\r\n") + SMUGGLED
            yield ("behind a name", at), head(b"Content-Length" + at + b": 0\r\n") + SMUGGLED
        for at in (b"\x00", b"\x01", b"\x08", b"\x0b", b"\x0c", b"\x1f", b"\x7f", b"\r", b"\n"):
            yield ("in a value", at), head(b"X: a" + at + b"b\r\n") + SMUGGLED
            yield ("in a tag", at), head(b"MQ-Tag: a" + at + b"b\r\nContent-Length: 0\r\n") + SMUGGLED
        for line in (
            b"\r",
            b"X\r\n",
            b": a\r\n",
            b" : a\r\n",
            b"=\r\n",
            b"X a\r\n",
            b"\x00\r\n",
            b"POST / HTTP/1.1\r\n",
        ):
            yield ("no field", line), head(line) + SMUGGLED
        yield "a line feed before it", b"\n" + head(b"Content-Length: 0\r\n") + SMUGGLED

    return _named("lines", rows())


_ONCE = (
    b"Content-Type", b"Content-Encoding", b"Authorization", b"Expect", b"MQ-Tag", b"MQ-Queue", b"MQ-Message-Group", b"MQ-Delay", b"MQ-Deliver-At",
    b"MQ-Delay-Level", b"Idempotency-Key", b"MQ-Producer-Group", b"MQ-Check-After", b"MQ-Timeout", b"MQ-Correlation-Id", b"MQ-Client",
    b"MQ-Reply-To", b"MQ-Request-Id", b"MQ-Peer-Proof", b"Host", b"Content-Length", b"Transfer-Encoding",
)  # fmt: skip
_HOSTS = (
    b"", b" ", b"a b", b"a/b", b"a@b", b"user:pw@mesh", b"mesh:port", b"mesh:123456", b"mesh:-1", b"a,b", b"a;b", b"a?b", b"a#b", b"[::1", b"::1]", b"[zz]",
    b"a\tb", b"a\\b", b"\xc3\xa9", b"a%00b", b"<a>", b"a'b", b"http://mesh", b"*", b"mesh:80:80",
)  # fmt: skip
_REQUEST_LINES = (
    b"GET / HTTP/0.9", b"GET / HTTP/2.0", b"GET / HTTP/1.2", b"GET / HTTP/3.0", b"GET / HTTP/1.10", b"GET / HTTP/11", b"GET / HTTP/1", b"GET / HTTP/",
    b"GET / http/1.1", b"GET / HTTP/1.1 ", b"GET / HTTP/1.1\t", b"GET / XTTP/1.1", b"GET /", b"GET", b"get / HTTP/1.1", b"G\x00ET / HTTP/1.1",
    b"GET\t/ HTTP/1.1", b"\x00GET / HTTP/1.1", b"GET /\x00 HTTP/1.1", b"GET /a b HTTP/1.1", b"GET /\x80 HTTP/1.1", b"GET /#a HTTP/1.1",
    b"GET /v1/topics#x HTTP/1.1", b"GET a HTTP/1.1", b"GET healthz HTTP/1.1", b"GET * HTTP/1.1", b"OPTIONS * HTTP/1.1",
    b"GET http://other/healthz HTTP/1.1", b"GET http://u@mesh/healthz HTTP/1.1", b"GET http://mesh:81/healthz HTTP/1.1", b"GET ftp://mesh/healthz HTTP/1.1",
    b"GET http:///healthz HTTP/1.1", b"GET file:///etc/passwd HTTP/1.1", b"GET //mesh/healthz HTTP/1.1", b"GET \\healthz HTTP/1.1",
    b"CONNECT mesh:80 HTTP/1.1", b"CONNECT /healthz HTTP/1.1", b"PRI * HTTP/2.0", b"SOURCE / ICE/1.0", b"OPTIONS rtsp://mesh RTSP/1.0",
    b"GET ?a=b HTTP/1.1", b"GET ; HTTP/1.1", b"TRACK / HTTP/1.1", b"GETT / HTTP/1.1", b"\xef\xbb\xbfGET / HTTP/1.1", b"\x16\x03\x01\x02\x00\x01\x00",
)  # fmt: skip


def heads() -> list[Case]:
    """Who is meant, and by which of two: request lines, hosts, headers given twice."""

    def rows() -> Iterator[tuple[object, bytes]]:
        for line in _REQUEST_LINES:
            yield line, line + b"\r\nHost: mesh\r\n\r\n" + SMUGGLED
        yield "no host", head(b"Content-Length: 0\r\n", host=b"") + SMUGGLED
        for host in _HOSTS:
            yield ("host", host), head(b"Content-Length: 0\r\n", host=b"Host: " + host + b"\r\n") + SMUGGLED
            yield ("second host", host), head(b"Content-Length: 0\r\nHost: " + host + b"\r\n") + SMUGGLED
        for name in _ONCE:
            yield ("twice", name), head(name + b": 1\r\n", name.lower() + b": 2\r\n", b"X: y\r\n") + SMUGGLED

    return _named("heads", rows())


# Chunks -----------------------------------------------------------------------------------------------------------
_CHUNKS = (
    b"8 \r\nsmuggled\r\n", b" 8\r\nsmuggled\r\n", b"0x8\r\nsmuggled\r\n", b"+8\r\nsmuggled\r\n", b"-8\r\nsmuggled\r\n", b"8_\r\nsmuggled\r\n",
    b"\r\nsmuggled\r\n", b"8\nsmuggled\r\n", b"8\rsmuggled\r\n", b"8\r\r\nsmuggled\r\n", b"8\r\nsmuggled\n", b"8\r\nsmuggled\r", b"8\r\nsmuggled",
    b"7\r\nsmuggled\r\n", b"9\r\nsmuggled\r\n", b"8;\r\nsmuggled\r\n", b"8;;\r\nsmuggled\r\n", b"8;a\nsmuggled\r\n", b"8;a\rb\r\nsmuggled\r\n",
    b'8;a="\r\n"\r\nsmuggled\r\n', b"8;a=\x00\r\nsmuggled\r\n", b'8;a="b\r\nsmuggled\r\n', b"8;a b\r\nsmuggled\r\n",
    b"8;\x80\r\nsmuggled\r\n", b"8,8\r\nsmuggled\r\n", b"8 8\r\nsmuggled\r\n", b"g\r\nsmuggled\r\n", b"8h\r\nsmuggled\r\n", b"8.\r\nsmuggled\r\n",
    b"\xef\xbc\x98\r\nsmuggled\r\n", b"fffffffffffffffff\r\nsmuggled\r\n", b"10000000000000000\r\nsmuggled\r\n", b"8\r\nsmuggled\r\n\r\n",
    b"8\x00\r\nsmuggled\r\n", b"8\x0b\r\nsmuggled\r\n", b"8\t\r\nsmuggled\r\n", b"\x008\r\nsmuggled\r\n", b"8;a\x00\r\nsmuggled\r\n", b"'8'\r\nsmuggled\r\n",
)  # fmt: skip


def chunks() -> list[Case]:
    """Sizes that are none, extensions that end early, ends that are no ends, and headers behind the body that must stand before it."""

    def rows() -> Iterator[tuple[object, bytes]]:
        for chunk in _CHUNKS:
            yield chunk, head(CHUNKED) + chunk + EMPTY_CHUNKS + SMUGGLED
        good = head(CHUNKED) + b"8\r\nsmuggled\r\n"
        for end in (
            b"0\n\n",
            b"0\r\n\n",
            b"0\r\n\r",
            b"0\r\n\rX",
            b"00;\r\n\r\n",
            b"0 \r\n\r\n",
            b"-0\r\n\r\n",
            b"0\r\nX\r\n\r\n",
            b"0\r\n X: y\r\n\r\n",
            b"0\r\nX: a\n\r\n",
        ):
            yield ("end", end), good + end + SMUGGLED
        for name in _ONCE:
            yield ("behind the body", name), good + b"0\r\n" + name + b": 8\r\n\r\n" + SMUGGLED
        yield (
            "65 trailers and more",
            good + b"0\r\n" + b"X: " + b"y" * 200 + (b"\r\nX: " + b"y" * 200) * 90 + b"\r\n\r\n" + SMUGGLED,
        )

    return _named("chunks", rows())


# Traversal --------------------------------------------------------------------------------------------------------
_STEPS = (
    b"..", b".", b"%2e%2e", b"%2E%2e", b".%2e", b"%2e", b"..%2f..%2fetc%2fpasswd", b"..%5c..%5cetc", b"%2fetc%2fpasswd", b"%5cetc", b"..%00", b"a%00b",
    b"%c0%ae%c0%ae", b"%c0%af", b"%e0%80%af", b"%252e%252e", b"%252f", b"..;", b"..;a=b", b"....", b"..%0d%0aX:y", b"%0a", b"%7f", b"~root", b"C:",
    b"%u002e%u002e", b"%zz", b"%", b"%2", b"a%", b"..\\..\\etc", b"a|b", b"$(id)", b"`id`", b"'%20or%201=1", b"<script>", b"%3cscript%3e", b"a%20b", b"%ff%fe",
    b"%ef%bc%8e%ef%bc%8e", b"*", b"%2A", b"%25RETRY%25a", b"%25DLQ%25a", b".git", b"-", b"_a", b"a.b", b"a%2e", b"a" * 200, b"%F0%9F%92%A9",
)  # fmt: skip
_PLACES = (
    (b"PUT", b"/v1/topics/%s"),
    (b"POST", b"/v1/topics/%s/messages"),
    (b"PUT", b"/v1/groups/%s"),
    (b"POST", b"/v1/topics/hostile/groups/%s/receive"),
    (b"GET", b"/v1/topics/hostile/queues/%s/messages"),
    (b"POST", b"/v1/topics/%s/groups/readers/ack"),
)


def traversal() -> list[Case]:
    """Names that lead elsewhere, escaped once, twice and wrongly, in every place where a name stands."""

    def rows() -> Iterator[tuple[object, bytes]]:
        for (method, template), step in product(_PLACES, _STEPS):
            target = template.replace(b"%s", step)
            yield (
                target,
                head(
                    b"Content-Length: 2\r\nContent-Type: application/json\r\nConnection: close\r\n",
                    method=method,
                    target=target,
                )
                + b"{}",
            )
        for path in (
            b"/../../etc/passwd",
            b"/./healthz",
            b"/v1/../healthz",
            b"//healthz",
            b"/v1//topics",
            b"/%2e%2e/%2e%2e/etc/passwd",
            b"/healthz/..",
            b"/healthz/.",
            b"/v1/topics/hostile%2fmessages",
            b"/v1%2ftopics",
            b"/healthz%00",
            b"/healthz%0d%0aX:%20y",
            b"/..%c0%afetc/passwd",
        ):
            yield path, head(b"Connection: close\r\n", method=b"GET", target=path)

    return _named("traversal", rows())


# Bombs ------------------------------------------------------------------------------------------------------------
_DOCUMENTS = (
    b"[" * 40_000 + b"]" * 40_000,
    b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    b"[" + b"{}," * 20_000 + b"{}]",
    b'{"type":"FIFO","type":"NORMAL","topic":"a","topic":"b","messages":[],"messages":[],"wait":0,"wait":1}',
    b'{"queues":1' + b"0" * 40 + b',"max_messages":9' + b"9" * 40 + b"}",
    b'{"queues":NaN,"max_messages":NaN}',
    b'{"queues":Infinity,"max_messages":-Infinity}',
    b'{"queues":1e999,"max_messages":1e999}',
    b'{"a":"' + b"\\u0000" * 1_000 + b'"}',
    b"\xff\xfe{\x00}\x00",
    b'{"queues":' + b"9" * 5_000 + b"}",
    b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(12_000)) + b"}",
)
_DOORS = (
    (b"POST", b"/v1/topics/hostile/messages/batch"),
    (b"POST", b"/v1/topics/hostile/groups/readers/receive"),
    (b"POST", b"/v1/topics/hostile/groups/readers/ack"),
    (b"POST", b"/v1/topics/hostile/groups/readers/settle"),
    (b"POST", b"/v1/transactions"),
    (b"PUT", b"/v1/topics/hostile"),
    (b"PUT", b"/v1/groups/readers"),
    (b"PUT", b"/v1/groups/readers/offsets"),
    (b"POST", b"/v1/groups/readers/seek"),
    (b"PUT", b"/v1/producer-groups/hostile"),
    (b"POST", b"/v1/groups/readers/members/heartbeat"),
)
_ENCODINGS = (
    b"gzip",
    b"x-gzip",
    b"deflate",
    b"br",
    b"zstd",
    b"gzip, gzip",
    b"identity, gzip",
    b"GZIP",
    b"compress",
    b"unknown",
)


def _packed_bombs() -> Iterator[tuple[object, bytes]]:
    many = 300_000
    yield "messages", b"\x81\xa8messages\xdd" + many.to_bytes(4, "big") + b"\x81\xa4body\xc4\x00" * many
    yield "keys", b"\x81\xa8messages\x91\x82\xa4body\xc4\x00\xa4keys\xdd" + many.to_bytes(4, "big") + b"\xa2ab" * many
    yield "a list that is not there", b"\x81\xa8messages\xdd\xff\xff\xff\xff"
    yield "bytes that are not there", b"\x81\xa8messages\x91\x81\xa4body\xc6\xff\xff\xff\xff"
    yield "depth", b"\x81\xa8messages" + b"\x91" * 100_000 + b"\x90"


def bombs() -> list[Case]:
    """Small documents that become large ones, bodies without end, heads and targets beyond their size."""

    def sent(method: bytes, target: bytes, body: bytes, kind: bytes = b"application/json", more: bytes = b"") -> bytes:
        length = b"Content-Length: %d\r\nContent-Type: %s\r\nConnection: close\r\n" % (len(body), kind)
        return head(length, more, method=method, target=target) + body

    def rows() -> Iterator[tuple[object, bytes]]:
        for (method, target), document in product(_DOORS, _DOCUMENTS):
            yield (target, document[:20]), sent(method, target, document)
        packed = gzip.compress(bytes(1 << 20)), zlib.compress(b" " * (1 << 20))
        for (method, target), encoding in product(_DOORS, _ENCODINGS):
            more = b"Content-Encoding: " + encoding + b"\r\n"
            yield (target, encoding), sent(method, target, packed[encoding == b"deflate"], more=more)
        for name, document in _packed_bombs():
            yield name, sent(b"POST", b"/v1/topics/hostile/messages/batch", document, b"application/vnd.msgpack")
        deep = msgspec.json.encode({"messages": [{"json": 0}]}).replace(b"0", b"[" * 500 + b"]" * 500)
        yield "deep JSON in a message", sent(b"POST", b"/v1/topics/hostile/messages/batch", deep)
        for (method, target), size in product(_DOORS, (b"17000000", b"999999999999", b"9223372036854775807")):
            yield (
                ("announced", target, size),
                head(
                    b"Content-Length: " + size + b"\r\nContent-Type: application/json\r\n", method=method, target=target
                )
                + b" ",
            )
        for count in (65, 100, 1_000):
            yield ("fields", count), head(b"X: y\r\n" * count, method=b"GET", target=b"/healthz")
        for long in (17 << 10, 64 << 10, 1 << 20):
            yield ("a long field", long), head(b"X: " + b"y" * long + b"\r\n", method=b"GET", target=b"/healthz")
            yield ("a long name", long), head(b"X" * long + b": y\r\n", method=b"GET", target=b"/healthz")
            yield ("a long target", long), head(method=b"GET", target=b"/" + b"a" * long)
            yield ("a long query", long), head(method=b"GET", target=b"/healthz?" + b"a" * long)
        yield "4 KiB and 1 of target", head(method=b"GET", target=b"/healthz?" + b"a" * 4_088)
        yield "chunks of one byte", head(CHUNKED) + b"1\r\nx\r\n" * 20_000 + EMPTY_CHUNKS + SMUGGLED
        yield "zeros of a size", head(CHUNKED) + b"0" * (34 << 20)
        yield "an extension", head(CHUNKED) + b"8;a=" + b"b" * (34 << 20)
        yield (
            "more in chunks than a message has",
            head(CHUNKED) + (b"100000\r\n" + bytes(1 << 20) + b"\r\n") * 5 + EMPTY_CHUNKS,
        )

    ahead = head(b"Content-Length: 0\r\n", target=b"/v1/nowhere") * 3_000
    return [
        *_named("bombs", rows()),
        Case(family="bombs", name="bombs: requests ahead", parts=(ahead,), answers_max=70),
    ]


# Slow clients -----------------------------------------------------------------------------------------------------
def slow() -> list[Case]:
    """Clients that begin and do not end: silent, stuck, and dripping."""
    whole = head(b"Content-Length: 400\r\n")
    chunked = head(CHUNKED)
    stuck = [b"", b"\r\n", b"P", b"POST ", b"POST " + SEND, whole[:30], whole[:-2], whole[:-1], whole, whole + b"x" * 399, chunked, chunked + b"8", chunked + b"8\r\nabc", chunked + b"8\r\nsmuggled\r\n0\r\n"]  # fmt: skip
    dripping = [
        (b"GET /healthz HTTP/1.1\r\nHost: mesh\r\n", b"X: y\r\n"),
        (b"GET /healthz HTTP/1.1\r\nHost: mesh\r\nX: ", b"y"),
        (b"GET /", b"a"),
        (whole, b"x"),
        (chunked, b"1\r\nx\r\n"),
        (chunked + b"8;a", b"b"),
        (chunked, b"0"),
        (chunked + b"0\r\n", b"X: y\r\n"),
        (b"\r\n", b"\r\n"),
    ]
    cases = [Case(family="slow", name=f"slow: stuck at {part[-20:]!r}", parts=(part,)) for part in stuck]
    return cases + [
        Case(family="slow", name=f"slow: dripping {parts[0][-12:]!r} {parts[1]!r}", parts=parts, pause_ms=250)
        for parts in dripping
    ]


# Of a door that knows no topics: what every one of our servers refuses.
FAMILIES_OF_ALL = (framing, lines, heads, chunks)
FAMILIES_OF_PROXY = (*FAMILIES_OF_ALL, traversal, bombs)
