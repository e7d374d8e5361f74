"""What a Python worker has loaded is not looked through after every task."""

import gc

from headwater.spark.source.source import keep_imports


def test_what_is_loaded_is_exempt_from_collection_once() -> None:
    gc.unfreeze()
    keep_imports.cache_clear()
    keep_imports()
    kept = gc.get_freeze_count()
    assert kept > 1000
    later: list[list[int]] = [[] for _ in range(1000)]
    keep_imports()
    assert gc.get_freeze_count() <= kept
    assert len(later) == 1000
    gc.unfreeze()
