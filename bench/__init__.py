"""Benchmarks: what memfs costs, in ratios and request counts. `python -m bench all --quick`; see bench/__main__.py."""
