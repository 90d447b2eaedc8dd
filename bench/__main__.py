"""python -m bench boot|add|fetch|grep|recall|ways|all [--quick|--full] [--out DIR]

Servers and temporary folders are gone afterwards, also when interrupted. Results are
`<name>.json` and `<name>.md` in DIR (bench/results). Data sets that are not part of the
project lie in $MEMFS_DATA; what is not there is skipped, and said.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from bench.add import Built
from bench.harness import Result, Settings, Store, scratch

NAMES = ("add", "boot", "fetch", "grep", "recall", "ways")


def main() -> int:
    """Run what was asked for; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n\n")[1] if __doc__ else None)
    parser.add_argument("names", nargs="+", choices=(*NAMES, "all"), metavar="boot|add|fetch|grep|recall|ways|all")
    parser.add_argument("--quick", action="store_true", help="fewer trials and questions")
    parser.add_argument("--full", action="store_true", help="200,000 files too: some minutes and 10 GB of disk")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", metavar="DIR")
    asked = parser.parse_args()
    settings = Settings(asked.quick, asked.full)
    missed = 0
    corpora: dict[int, Built] = {}
    try:
        with scratch() as folder, Store(folder / "seaweed") as store:
            for name in NAMES if "all" in asked.names else dict.fromkeys(asked.names):
                result: Result = importlib.import_module(f"bench.{name}").main(settings, folder, store, corpora)
                page = result.write(asked.out)
                print(result.markdown(), flush=True)
                print(f"written: {page} and {page.with_suffix('.json').name}\n", file=sys.stderr)
                missed += sum(not target.met for target in result.targets)
    except KeyboardInterrupt:
        print("interrupted; servers and temporary folders are gone", file=sys.stderr)
        return 130
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
