"""Adapters: other memory systems, asked the questions of `memfs eval`; each runs in an environment of its own."""
