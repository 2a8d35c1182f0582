"""Files of idempotency keys against a plain dict: what is found, what survives, what damage does. Tables are tiny."""

import errno
import random
from pathlib import Path

import numpy as np
import pytest

from tern_store import DerivedDamage, LogRot
from tern_store.keys.key_filter import CHUNK_TABLES, KeyFilters, filter_words, make_filter
from tern_store.keys.sent_keys import FOLDER, KeyFileJob, SentKeys, file_name
from tern_wire.link.key_rows import Receipt
from tests.support.files.faulty_files import FaultyFiles, PowerCut
from tests.support.files.sealed_keys import SealedKeys, fresh_keys

DIRECTORY = Path("/data")
TABLE_KEYS_MAX = 64


def opened(files: FaultyFiles, marks: list[int] | None = None, table_keys_max: int = TABLE_KEYS_MAX) -> SentKeys:
    """The tables of *marks*."""
    sent_keys = SentKeys.open(DIRECTORY, table_keys_max=table_keys_max, files=files)
    sent_keys.restore(marks or [])
    return sent_keys


def filled(
    files: FaultyFiles, rng: random.Random, tables: int, count: int = 40
) -> tuple[SentKeys, dict[bytes, Receipt]]:
    """*tables* tables on the disk, and what is in them."""
    sent_keys, model = opened(files), dict[bytes, Receipt]()
    for number in range(1, tables + 1):
        keys = fresh_keys(rng, count)
        sent_keys.add(number, SealedKeys(keys), newest_ms=number).run()
        model |= keys
    return sent_keys, model


@pytest.mark.parametrize("seed", range(4))
def test_what_is_found_is_what_a_dict_would_find(seed: int) -> None:
    """Tables are added, written sooner or later, dropped, saved and opened anew, in any order; more than one chunk of filters."""
    print("seed", seed)
    rng, files = random.Random(seed), FaultyFiles()
    sent_keys, model = opened(files), dict[int, dict[bytes, Receipt]]()
    waiting: list[KeyFileJob] = []
    number = 0
    for _ in range(250):
        match rng.choice(("add", "add", "write", "write", "drop", "save", "restart", "ask", "ask")):
            case "add" if len(model) < CHUNK_TABLES + 8:
                number += 1
                taken = set().union(*model.values()) if model else set()
                keys = {
                    key: receipt for key, receipt in fresh_keys(rng, rng.randrange(1, 300)).items() if key not in taken
                }
                model[number] = keys
                waiting.append(sent_keys.add(number, SealedKeys(keys), newest_ms=number))
            case "write" if waiting:
                waiting.pop(rng.randrange(len(waiting))).run()
            case "drop" if model:
                del model[min(model)]
                sent_keys.drop(min(sent_keys.numbers()))
                assert sent_keys.numbers() == sorted(model)
            case "save":
                marks = sent_keys.begin_save()
                assert list(sent_keys.written_before(lambda: [b"payload"])()) == [b"payload"]
                sent_keys.saved()
                waiting.clear()
                assert marks == sorted(model)
                assert {path.name for path in files.paths(DIRECTORY / FOLDER)} >= set(map(file_name, marks))
            case "restart" if not waiting:
                marks = sent_keys.marks()
                sent_keys.close()
                sent_keys = opened(files, marks)
            case _:
                known = {key: receipt for keys in model.values() for key, receipt in keys.items()}
                asked = rng.sample(sorted(known), min(len(known), rng.choice((1, 60, 600)))) + list(
                    fresh_keys(rng, rng.choice((1, 20)))
                )
                expected = {at: known[key] for at, key in enumerate(asked) if key in known}
                assert sent_keys.find(b"".join(asked)) == expected
    sent_keys.close()
    assert files.open_count() == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_is_found_and_never_a_wrong_receipt(seed: int) -> None:
    """Anywhere in a file: a key is answered rightly or with damage, and a verification finds it."""
    rng, files = random.Random(seed), FaultyFiles()
    sent_keys, model = filled(files, rng, 2, 300)
    path = DIRECTORY / FOLDER / file_name(1)
    marks = sent_keys.marks()
    sent_keys.close()
    fd = files.open(path)
    size = files.size(fd)
    for _ in range(60):
        position, bit = rng.randrange(size), 1 << rng.randrange(8)
        before = files.pread(fd, 1, position)
        files.pwrite(fd, bytes([before[0] ^ bit]), position)
        sent_keys = opened(files, marks)
        assert any(isinstance(found, DerivedDamage) for found in sent_keys.verify()), position
        damaged = 0
        for key, receipt in rng.sample(sorted(model.items()), 30):
            try:
                assert sent_keys.find(key) == {0: receipt}
            except DerivedDamage:
                damaged += 1
        sent_keys.close()
        files.pwrite(fd, before, position)
    files.close(fd)
    sent_keys = opened(files, marks)
    assert not any(isinstance(found, DerivedDamage) for found in sent_keys.verify())


@pytest.mark.parametrize("derivable", [True, False])
def test_a_missing_file_is_damage_once_its_table_is_asked_for_and_none_when_it_was_dropped(derivable: bool) -> None:
    """It may have gone with an entry that is still to be applied; what the log cannot give back is rot."""
    files = FaultyFiles()
    sent_keys, model = filled(files, random.Random(1), 2)
    marks = sent_keys.marks()
    sent_keys.close()
    files.unlink(DIRECTORY / FOLDER / file_name(1))
    sent_keys = opened(files, marks)
    sent_keys.is_derivable = lambda _number: derivable
    for ask in (sent_keys.require_all, lambda: sent_keys.find(next(iter(model)))):
        with pytest.raises(DerivedDamage if derivable else LogRot):
            ask()
    sent_keys.drop(1)
    sent_keys.require_all()
    last = list(model)[-1]
    assert sent_keys.find(last) == {0: model[last]}


def test_files_of_another_size_or_number_are_not_believed() -> None:
    """Tables for other counts have other filters; a file under another's name is another's."""
    files = FaultyFiles()
    sent_keys, _ = filled(files, random.Random(1), 1)
    sent_keys.close()
    with pytest.raises(DerivedDamage, match="another size"):
        opened(files, [1], table_keys_max=TABLE_KEYS_MAX * 64).require_all()
    files.rename(DIRECTORY / FOLDER / file_name(1), DIRECTORY / FOLDER / file_name(2))
    with pytest.raises(DerivedDamage, match="another table"):
        opened(files, [2]).require_all()


def test_a_file_goes_when_two_saved_states_do_not_name_it_and_not_before() -> None:
    """A failed save does not count, and a table that was dropped while it waited goes, too."""
    files = FaultyFiles()
    sent_keys, _ = filled(files, random.Random(1), 3)
    path = DIRECTORY / FOLDER / file_name(1)
    sent_keys.drop(1)
    for done, is_there in ((True, True), (False, True), (True, False)):
        sent_keys.begin_save()
        if done:
            sent_keys.saved()
        assert (path in files.paths(DIRECTORY)) == is_there
    job = sent_keys.add(9, SealedKeys(fresh_keys(random.Random(2), 5)), newest_ms=9)
    sent_keys.drop(9)
    job.run()
    for _ in range(2):
        sent_keys.begin_save()
        sent_keys.saved()
    assert {one.name for one in files.paths(DIRECTORY / FOLDER)} == {file_name(2), file_name(3)}


def test_a_table_stays_in_memory_while_the_disk_is_full() -> None:
    """It is found all the time, and a save's own attempt fails as that of a full disk does."""
    files, keys = FaultyFiles(), fresh_keys(random.Random(1), 20)
    sent_keys = opened(files)
    job = sent_keys.add(1, SealedKeys(keys), newest_ms=1)
    asked = b"".join(keys)
    for attempt in (job.run, sent_keys.written_before(list)):
        files.fail_next("pwrite", errno.ENOSPC)
        with pytest.raises(OSError, match="space"):
            attempt()
        assert (sent_keys.waiting, sent_keys.find(asked)) == (1, dict(enumerate(keys.values())))
    job.run()
    assert (sent_keys.waiting, sent_keys.find(asked)) == (0, dict(enumerate(keys.values())))


def test_a_table_stays_in_memory_while_its_file_cannot_be_opened() -> None:
    """Without a descriptor for it, what the table holds is found all the same, and nobody who looks is told of the lack."""
    files, keys = FaultyFiles(), fresh_keys(random.Random(1), 20)
    sent_keys, asked = opened(files), b"".join(keys)
    sent_keys.add(1, SealedKeys(keys), newest_ms=1).run()
    files.refuse(random.Random(1), 1.0, [errno.EMFILE])
    assert (sent_keys.waiting, sent_keys.find(asked)) == (1, dict(enumerate(keys.values())))
    files.relent()
    assert (sent_keys.waiting, sent_keys.find(asked)) == (0, dict(enumerate(keys.values())))


@pytest.mark.parametrize("seed", range(3))
def test_after_a_power_cut_every_table_that_a_payload_was_behind_is_whole(seed: int) -> None:
    """Cut at each operation in turn: what is there verifies, what is not is said to be missing."""
    cut = 0
    while True:
        rng, files = random.Random(seed), FaultyFiles()
        sent_keys = opened(files)
        known, durable = dict[bytes, Receipt](), list[int]()
        files.operations, files.cut_at = 0, cut
        try:
            for number in (1, 2, 3):
                keys = fresh_keys(rng, rng.randrange(1, 200))
                sent_keys.add(number, SealedKeys(keys), newest_ms=number)
                sent_keys.written_before(lambda: [b""])()
                known |= keys
                durable = sent_keys.marks()
        except PowerCut:
            files.crash(rng)
            after = opened(files, durable)
            after.require_all()
            assert after.find(b"".join(known)) == dict(enumerate(known.values()))
            assert {path.name for path in files.paths(DIRECTORY / FOLDER)} == set(map(file_name, durable))
        else:
            break
        cut += 1
    assert cut > 10


def test_the_filters_miss_no_key_and_pass_few_others() -> None:
    """Of full tables: below one in 300 each, or a look-up would read a page for most new keys."""
    rng = np.random.default_rng(3)
    count, tables = 4_096, CHUNK_TABLES + 3
    filters, words = KeyFilters(filter_words(count)), filter_words(count)
    keys = [rng.integers(1, 1 << 64, (2, count), dtype=np.uint64) for _ in range(tables)]
    places = [filters.put(make_filter(first, second, words)) for first, second in keys]
    for place, (first, second) in zip(places, keys, strict=True):
        found = {number for where, number in filters.candidates(first, second) if where == place}
        assert found == set(range(count))
    others = filters.candidates(*rng.integers(1, 1 << 64, (2, 50_000), dtype=np.uint64))
    assert len(others) < 50_000 * tables / 300
    for place in places:
        filters.drop(place)
    assert filters.candidates(*keys[0]) == []
