"""Frames as bytes: what is written, what is read back, and what is refused. No loop, no sockets."""

import random
import struct

import pytest

from tern_remoting import ONE_WAY, RESPONSE, Buffer, Frame, FrameCorrupt, FrameReader, FrameTooLarge, encode_frame

MIB = 1024 * 1024
# name, frame, its bytes as RocketMQ would write them
CASES = [
    (
        "a request without a body",
        Frame(310, 1, 0, "", b""),
        "00000019 01000015 0136 03 0001 00000001 00000000 00000000 00000000",
    ),
    (
        "a request with a body",
        Frame(10, 0x01020304, 0, "", b"abc"),
        "0000001c 01000015 000a 03 0001 01020304 00000000 00000000 00000000 616263",
    ),
    (
        "a response",
        Frame(0, 7, RESPONSE, "", b"ok"),
        "0000001b 01000015 0000 03 0001 00000007 00000001 00000000 00000000 6f6b",
    ),
    (
        "a one-way",
        Frame(900, 0, ONE_WAY, "", b"\x00"),
        "0000001a 01000015 0384 03 0001 00000000 00000002 00000000 00000000 00",
    ),
    (
        "a remark in UTF-8",
        Frame(1, 2, RESPONSE, "zu gro\u00df", b"!"),
        "00000022 0100001d 0001 03 0001 00000002 00000001 00000008 7a752067726fc39f 00000000 21",
    ),
]


def written(frame: Frame) -> bytes:
    """The frame's bytes as our encoder makes them."""
    return b"".join(encode_frame(frame.code, frame.opaque, frame.flags, [frame.body], frame.remark))


def read(data: bytes, chunk_size: int, limit: int = 16 * MIB) -> list[Frame]:
    """Feed *data* in chunks of *chunk_size*."""
    reader = FrameReader(limit)
    return [frame for at in range(0, len(data), chunk_size) for frame in reader.feed(data[at : at + chunk_size])]


def read_in_place(data: bytes, chunk_size: int, scratch: bytearray | None = None) -> list[Frame]:
    """The kernel writes *data* where the reader says, at most *chunk_size* bytes at once; then it reuses the memory."""
    reader = FrameReader(16 * MIB, scratch)
    frames, at = [], 0
    while at < len(data):
        space = reader.space()
        size = min(len(space), chunk_size, len(data) - at)
        space[:size] = data[at : at + size]
        frames += reader.filled(size)
        reader.space()[:] = bytes(len(reader.space()))
        at += size
    return frames


@pytest.mark.parametrize(("name", "frame", "drawn"), CASES, ids=[case[0] for case in CASES])
def test_a_frame_is_written_as_it_is_drawn(name: str, frame: Frame, drawn: str) -> None:
    """The encoder's bytes are RocketMQ's."""
    assert written(frame).hex() == drawn.replace(" ", "")


@pytest.mark.parametrize("chunk_size", [1, 3, 4, 5, 29, 64, 10_000])
def test_frames_are_read_back_however_they_are_cut(chunk_size: int) -> None:
    """All cases in one stream, whole and in pieces down to one byte."""
    frames = [frame for _, frame, _ in CASES]
    assert read(b"".join(map(written, frames)), chunk_size) == frames


def test_a_body_is_written_without_a_copy() -> None:
    """The parts come back as the very objects that went in."""
    parts: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"three")]
    buffers = encode_frame(1, 1, 0, parts)
    assert [id(part) for part in buffers[1:]] == [id(part) for part in parts]


def test_ext_fields_are_skipped() -> None:
    """RocketMQ's own clients put their parameters there; we have none."""
    ext = b"\x00\x01k\x00\x00\x00\x01v"
    header = struct.pack(">HBHIII", 34, 0, 413, 5, 0, 0) + struct.pack(">I", len(ext)) + ext
    data = struct.pack(">II", 4 + len(header) + 2, 1 << 24 | len(header)) + header + b"hi"
    for chunk_size in (1, len(data)):
        assert read(data, chunk_size) == [Frame(34, 5, 0, "", b"hi")]


@pytest.mark.parametrize("chunk_size", [64 * 1024, 256 * 1024, 9 * MIB])
def test_a_frame_of_8_mib_arrives_in_chunks_between_small_ones(chunk_size: int) -> None:
    """The large body is whole, and its neighbours are untouched."""
    body = random.Random(1).randbytes(8 * MIB)
    small = Frame(1, 1, 0, "", b"small")
    frames = [small, Frame(2, 2, 0, "", body), small]
    assert read(b"".join(map(written, frames)), chunk_size) == frames


@pytest.mark.parametrize("chunk_size", [1, 3, 29, 64 * 1024, 300 * 1024, 9 * MIB])
def test_frames_are_read_in_place_as_they_are_fed(chunk_size: int) -> None:
    """Sizes around that from which a frame's rest is read at its place, between small frames, in chunks of any size."""
    sizes = [0, 1, 5_000] if chunk_size < 100 else [0, 5_000, *range(65_480, 65_560, 7), 300_000, 0, 262_144, 3 * MIB]
    chance = random.Random(chunk_size)
    frames = [Frame(at, at, 0, "ü" * (at % 2), chance.randbytes(size)) for at, size in enumerate(sizes)]
    data = b"".join(map(written, frames))
    assert read_in_place(data, chunk_size) == frames == read(data, chunk_size)


def test_readers_of_one_thread_may_share_their_scratch() -> None:
    """Two streams in turns: the bytes of one are never those of the other."""
    scratch = bytearray(1_000)
    frames = [Frame(1, at, 0, "", bytes([at]) * 700) for at in range(20)]
    readers = [FrameReader(16 * MIB, scratch) for _ in range(2)]
    found: list[list[Frame]] = [[], []]
    data = b"".join(map(written, frames))
    for at in range(0, len(data), 333):
        for reader, got in zip(readers, found, strict=True):
            part = data[at : at + 333]
            reader.space()[: len(part)] = part
            got += reader.filled(len(part))
    assert found == [frames, frames]


def test_a_body_is_read_only() -> None:
    """Whoever keeps a body, as bytes or as a view, cannot change it for others."""
    for size in (10, 100_000):
        for chunk_size in (1000, 200_000):
            (frame,) = read(written(Frame(1, 1, 0, "", bytes(size))), chunk_size)
            assert memoryview(frame.body).readonly


def test_an_oversized_frame_is_refused_at_its_first_four_bytes() -> None:
    """The limit holds before anything is buffered, at the byte."""
    assert FrameReader(100).feed(struct.pack(">I", 100)) == []
    with pytest.raises(FrameTooLarge) as refused:
        FrameReader(100).feed(struct.pack(">I", 101))
    assert (refused.value.size_bytes, refused.value.limit_bytes) == (101, 100)


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("too short for a header", "00000018"),
        ("JSON header", "00000019 00000015 0001 03 0001 00000001 00000000 00000000 00000000"),
        ("header beyond the frame", "00000019 01000016 0001 03 0001 00000001 00000000 00000000 00000000"),
        ("header below its minimum", "00000019 01000014 0001 03 0001 00000001 00000000 00000000 00000000"),
        ("remark beyond the header", "00000019 01000015 0001 03 0001 00000001 00000000 00000001 00000000"),
        ("remark of 4 GiB", "00000019 01000015 0001 03 0001 00000001 00000000 ffffffff 00000000"),
        ("ext beyond the header", "00000019 01000015 0001 03 0001 00000001 00000000 00000000 00000001"),
        ("remark not UTF-8", "0000001a 01000016 0001 03 0001 00000001 00000000 00000001 ff 00000000"),
    ],
)
def test_a_corrupt_frame_is_refused(name: str, drawn: str) -> None:
    """Each contradiction between the sizes ends in FrameCorrupt, whole and byte by byte."""
    data = bytes.fromhex(drawn)
    for chunk_size in (1, len(data)):
        with pytest.raises(FrameCorrupt):
            read(data, chunk_size)


def test_a_header_over_its_bound_is_refused_both_ways() -> None:
    """64 KiB of remark are neither written nor read."""
    with pytest.raises(FrameTooLarge):
        encode_frame(1, 1, 0, [], "r" * 65_536)
    header = struct.pack(">HBHIII", 1, 3, 1, 1, 0, 65_536) + b"r" * 65_536 + bytes(4)
    with pytest.raises(FrameCorrupt):
        read(struct.pack(">II", 4 + len(header), 1 << 24 | len(header)) + header, 1000)


def test_random_bytes_parse_or_raise_the_two_errors() -> None:
    """Bytes from a seed, alone and as damage to good frames; nothing but FrameCorrupt and FrameTooLarge comes out."""
    seed = 20_240_611
    print(f"seed {seed}")
    chance = random.Random(seed)
    good = b"".join(written(frame) for _, frame, _ in CASES)
    outcomes = {"parsed": 0, "corrupt": 0, "too large": 0}
    for _ in range(3_000):
        if chance.random() < 0.2:
            data = chance.randbytes(chance.randrange(1, 200))
        else:
            damaged = bytearray(good)
            for _ in range(chance.randrange(1, 4)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            data = bytes(damaged)
        try:
            read(data, chance.choice([1, 7, len(data)]), limit=4096)
            outcomes["parsed"] += 1
        except FrameCorrupt:
            outcomes["corrupt"] += 1
        except FrameTooLarge:
            outcomes["too large"] += 1
    assert all(outcomes.values()), outcomes
