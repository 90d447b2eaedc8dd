"""The Brain: a wiki whose every claim is tied to the turn that says it. The format: docs/brain-format.md."""
