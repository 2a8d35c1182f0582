"""Bloom filters of many tables of keys, tested together. In memory, 16 bits a key.

Each table has two filters of *words* words of 64 bits, 8 bits a key each. A key has three bits in
one word of either:
 first half:   | ...                     | word in A |        | = as many low bits as *words* needs
 second half:  | ... bits in B 18 | word in B 22 | bits in A 18 | ...   from bit 0: A's bits,
                                                        from bit 18: B's word, from bit 40: B's bits
Word and bits are the same in all tables, so filters A lie word by word beside each other, and eight
tables cost one cache line. A answers for all but about 4 % of absent keys; B is tested only for
those, so 1 absent key in about 700 is looked up in vain. The bits come from a 128-bit hash, which a
sender cannot choose.
"""

import numpy as np
import numpy.typing as npt

from tern_wire.array_thresholds import FILTERED_KEYS_ONE_BY_ONE_MAX

Words = npt.NDArray[np.uint64]
Halves = npt.NDArray[np.uint64]
# Memory is allocated for this many tables at once: 8 MiB at the usual size, 256 KiB per table.
CHUNK_TABLES = 32
# So many keys at once fit into the cache.
_STEP_KEYS = 256
_SIX = np.uint64(63)
_ONE = np.uint64(1)
_B_WORD_AT, _B_BITS_AT = 18, 40


def filter_words(keys_max: int) -> int:
    """Words of each of a table's two filters, for about *keys_max* keys: a power of two."""
    words = 1
    while words * 8 < keys_max:
        words *= 2
    return words


def make_filter(first: Halves, second: Halves, words: int) -> tuple[Words, Words]:
    """The filters A and B of a table with these keys."""
    filters = (np.zeros(words, np.uint64), np.zeros(words, np.uint64))
    for found, (places, bits) in zip(filters, (_in_a(first, second, words), _in_b(second, words)), strict=True):
        np.bitwise_or.at(found, places, bits)
    return filters


class KeyFilters:
    """The filters of all tables, each in its own place. Owner: the set of files."""

    def __init__(self, words: int) -> None:
        self._words = words
        # Each chunk has CHUNK_TABLES places: filters A, shape (words, places), where a key's words
        # of eight tables are one cache line, and filters B, shape (places, words), which are rarely
        # tested. Free places are zeros, which hold no key.
        self._chunks: list[tuple[Words, Words]] = []
        self._free: set[int] = set()

    def put(self, filters: tuple[Words, Words]) -> int:
        """Add the filters of a table and return their place."""
        if not self._free:
            begin = len(self._chunks) * CHUNK_TABLES
            a, b = np.zeros((self._words, CHUNK_TABLES), np.uint64), np.zeros((CHUNK_TABLES, self._words), np.uint64)
            self._chunks.append((a, b))
            self._free.update(range(begin, begin + CHUNK_TABLES))
        place = min(self._free)
        self._free.discard(place)
        chunk, number = divmod(place, CHUNK_TABLES)
        a, b = self._chunks[chunk]
        a[:, number], b[number] = filters
        return place

    def drop(self, place: int) -> None:
        """Remove the table at *place*."""
        chunk, number = divmod(place, CHUNK_TABLES)
        a, b = self._chunks[chunk]
        a[:, number], b[number] = 0, 0
        self._free.add(place)
        while self._chunks:
            last = range((len(self._chunks) - 1) * CHUNK_TABLES, len(self._chunks) * CHUNK_TABLES)
            if not self._free.issuperset(last):
                break
            self._chunks.pop()
            self._free.difference_update(last)

    def candidates(self, first: Halves, second: Halves) -> list[tuple[int, int]]:
        """Pairs (place, number of the key) of possible matches; no real match is missing."""
        found: list[tuple[int, int]] = []
        if not self._chunks:
            return found
        if len(first) <= FILTERED_KEYS_ONE_BY_ONE_MAX:
            for number, halves in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
                found += ((place, number) for place in self._candidates_of(*halves))
            return found
        for at in range(0, len(first), _STEP_KEYS):
            pairs = self._candidates(first[at : at + _STEP_KEYS], second[at : at + _STEP_KEYS])
            found += ((place, key + at) for place, key in pairs)
        return found

    def _candidates(self, first: Halves, second: Halves) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        words_a, bits_a = _in_a(first, second, self._words)
        words_b, bits_b = _in_b(second, self._words)
        wanted_a = bits_a[:, np.newaxis]
        for begin, (a, b) in enumerate(self._chunks):
            keys, places = np.divmod(np.flatnonzero(a.take(words_a, axis=0) & wanted_a == wanted_a), CHUNK_TABLES)
            wanted_b = bits_b[keys]
            is_found = b[places, words_b[keys]] & wanted_b == wanted_b
            found += zip((places[is_found] + begin * CHUNK_TABLES).tolist(), keys[is_found].tolist(), strict=True)
        return found

    def _candidates_of(self, first: int, second: int) -> list[int]:
        """The places that may hold one key."""
        found: list[int] = []
        word_a, word_b = first & self._words - 1, second >> _B_WORD_AT & self._words - 1
        bits_a, bits_b = _bits_of(second), _bits_of(second >> _B_BITS_AT)
        wanted_a = np.uint64(bits_a)
        for begin, (a, b) in enumerate(self._chunks):
            for place in np.flatnonzero(a[word_a] & wanted_a == wanted_a).tolist():
                if int(b[place, word_b]) & bits_b == bits_b:
                    found.append(place + begin * CHUNK_TABLES)
        return found


def _in_a(first: Halves, second: Halves, words: int) -> tuple[npt.NDArray[np.intp], Words]:
    return (first & np.uint64(words - 1)).astype(np.intp), _bits(second, 0)


def _in_b(second: Halves, words: int) -> tuple[npt.NDArray[np.intp], Words]:
    return (second >> np.uint64(_B_WORD_AT) & np.uint64(words - 1)).astype(np.intp), _bits(second, _B_BITS_AT)


def _bits(second: Halves, at: int) -> Words:
    """Three of 64 bits, from 18 bits of *second*."""
    bits = np.zeros(len(second), np.uint64)
    for step in (0, 6, 12):
        bits |= _ONE << (second >> np.uint64(at + step) & _SIX)
    return bits


def _bits_of(bits: int) -> int:
    """The bits of `_bits` for one key."""
    return 1 << (bits & 63) | 1 << (bits >> 6 & 63) | 1 << (bits >> 12 & 63)
