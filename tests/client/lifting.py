"""The blocking client with the interface of the asynchronous one, so that one test covers both."""

import inspect
from collections.abc import AsyncIterator
from typing import Any

MAKERS = (
    *("stream", "bucket", "producer", "follow", "chunks", "records", "last_records", "bootstrap", "scan"),
    *("streams", "buckets", "follow_many"),
)


class Lifted:
    """A blocking object whose methods are awaited, and whose iterators are iterated asynchronously."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or inspect.isclass(found):
            return found
        if name in MAKERS:
            return lambda *args, **kwargs: Lifted(found(*args, **kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            return found(*args, **kwargs)

        return call

    async def __aenter__(self) -> "Lifted":
        self._inner.__enter__()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self._inner.__exit__(kind, error, trace)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for value in self._inner:
            yield value

    async def aclose(self) -> None:
        self._inner.close()
