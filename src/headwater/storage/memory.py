"""Objects in memory, which end with the process."""

from collections.abc import Iterator
from threading import Lock

from headwater.storage.store import Item, KeyExists, KeyMissing, check_key, whole


class MemoryStore:
    """A store in memory.

    >>> store = MemoryStore()
    >>> store.create("catalog/1.json", b"{}")
    >>> list(store.items("cat"))
    [Item(key='catalog/1.json', size=2)]
    """

    url = "memory:"

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._lock = Lock()

    def create(self, key: str, data: bytes) -> None:
        check_key(key)
        with self._lock:
            if self._objects.setdefault(key, data) != data:
                raise KeyExists(f"A different object {key} exists in the store in memory.")

    def replace(self, key: str, data: bytes) -> None:
        check_key(key)
        with self._lock:
            self._objects[key] = data

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        check_key(key)
        data = self._objects.get(key)
        if data is None:
            raise KeyMissing(f"There is no object {key} in the store in memory.")
        return data[start:] if size is None else whole(key, data[start : start + size], size)

    def delete(self, key: str) -> None:
        check_key(key)
        with self._lock:
            self._objects.pop(key, None)

    def items(self, prefix: str) -> Iterator[Item]:
        with self._lock:
            found = [Item(key, len(data)) for key, data in self._objects.items() if key.startswith(prefix)]
        return iter(sorted(found))

    def remove_leftovers(self) -> None:
        """There are none."""
