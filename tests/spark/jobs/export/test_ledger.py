"""The ledger of an export, as files next to its table."""

from pathlib import Path

import pytest

from headwater.spark.jobs.export.ledger import IDENTITY_KEY, read_json
from headwater.spark.jobs.report import JobFailed
from headwater.storage.folder import FolderStore


@pytest.mark.parametrize("content", [b"[]", b"{", b"", b"\xff"])
def test_a_damaged_file_of_the_ledger_is_named(content: bytes, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "export", check=lambda key: None)
    store.create(IDENTITY_KEY, content)
    with pytest.raises(JobFailed, match=r"export\.json .* is damaged: it is not a JSON object"):
        read_json(store, IDENTITY_KEY)
    assert read_json(store, "_headwater/missing.json") is None
