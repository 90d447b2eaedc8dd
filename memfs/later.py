"""A call that runs beside others: less to load than concurrent.futures, which counts at boot."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Later"]

T = TypeVar("T")


class Later(Generic[T]):
    """A call that runs in a thread of its own; `wait` returns its value, or raises its error."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._error: Exception | None = None
        try:
            self._value = self._call()
        except Exception as error:  # noqa: BLE001 - carried to `wait`
            self._error = error

    def wait(self) -> T:
        """Wait for the call's end."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value
