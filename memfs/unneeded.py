"""Libraries that another one imports and memfs never uses: the command does without them (decision 014).

lancedb imports the client of a REST service for namespaces, 1.2 of the 2.1 s that it takes to load, and `overrides`,
which looks through the byte code of each class for 0.15 s. In a process of its own the command stands in for both:
what is imported from the first is a class that raises as soon as it is used, the second's decorator checks nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec

__all__ = ["UNNEEDED", "leave_out"]

UNNEEDED = ("lance_namespace", "lance_namespace_urllib3_client", "overrides")


def leave_out() -> None:
    """From now on, in this whole process, `UNNEEDED` are stand-ins: not for a process that others share."""
    sys.meta_path.insert(0, _Finder())


class _LeftOut(Exception):
    """An exception, for names in `except` clauses are looked at too."""

    def __init__(self, *args: object, **options: object) -> None:
        name = type(self)
        raise ImportError(f"{name.__module__} is left out of the memfs command, {name.__name__} with it")


def _unchecked(method: object) -> object:
    return method


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == "overrides":
            return _unchecked if name == "override" else object
        stand_in = type(name, (_LeftOut,), {"__module__": self.__name__})
        setattr(self, name, stand_in)
        return stand_in


class _Finder:
    """Both a finder and a loader of stand-ins."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in UNNEEDED:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: names come when they are asked for."""
