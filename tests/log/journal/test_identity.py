import pytest

from headwater.log.journal import identity
from headwater.log.journal.files import VERSION, JournalDamaged

from .journals import DIRECTORY, Workbench


def test_a_journal_keeps_its_id_and_its_key_and_two_journals_differ() -> None:
    bench, other = Workbench(), Workbench()
    assert bench.open().log_id == bench.open().log_id != other.open().log_id
    first, second = identity.load(DIRECTORY, bench.disk), identity.load(DIRECTORY, other.disk)
    assert first is not None and second is not None
    assert first.key != second.key
    assert first.log_id not in first.key


def test_a_missing_identity_beside_journal_files_is_refused() -> None:
    bench = Workbench()
    bench.fill(1)
    bench.disk.remove(DIRECTORY / identity.NAME)
    with pytest.raises(JournalDamaged, match=r"identity\.json is missing, but there are journal files; restore it"):
        bench.open()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "cannot be read"),
        (b'{"format":1', "cannot be read"),
        (b'{"format":%d,"log_id":"9\xb92c","key":"00"}' % VERSION, "cannot be read"),
        (b'{"format":%d,"log_id":"9f2c"}' % VERSION, "cannot be read"),
        (b'{"format":1,"journal":"9f2c","key":"00"}', f"has format 1; this server reads format {VERSION}"),
        (b'{"format":99,"log_id":"9f2c","key":"00"}', f"has format 99; this server reads format {VERSION}"),
    ],
)
def test_a_bad_identity_is_refused(text: bytes, complaint: str) -> None:
    bench = Workbench()
    bench.disk.names(DIRECTORY)
    file = bench.disk.create(DIRECTORY / identity.NAME)
    file.write([text], 0)
    with pytest.raises(JournalDamaged, match=complaint):
        bench.open()


def test_half_an_identity_under_its_temporary_name_is_replaced() -> None:
    bench = Workbench()
    bench.disk.names(DIRECTORY)
    bench.disk.create(DIRECTORY / "identity.tmp", 3)
    assert bench.open().log_id
    assert bench.disk.names(DIRECTORY) == [identity.NAME]
