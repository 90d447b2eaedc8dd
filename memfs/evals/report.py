"""An evaluation as Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from memfs.evals.ledger import Comparison
from memfs.evals.run import Result

__all__ = ["compared_text", "result_text"]

TITLES = {
    "turn_r10": "turn R@10", "session_r5": "session R@5",
    "session_any5": "any session of 5", "touched": "touched in budget",
    "recall_in_budget": "recall in budget", "precision_in_budget": "precision in budget", "turn_r5": "turn R@5",
}  # fmt: skip


def result_text(result: Result) -> str:
    """Return all tables."""
    return "\n".join(_lines(result))


def _lines(result: Result) -> Iterator[str]:
    answerable = sum(result.answerable)
    wiki = "with the wiki that a dream without a model makes" if result.wiki else "without a wiki"
    yield f"# {result.dataset}\n"
    yield (
        f"{answerable:,} questions that have an answer, {len(result.questions) - answerable:,} that have none; "
        f"embedder {result.embedder}, {wiki}, {result.budget_tokens:,} tokens for every way, seed {result.seed}. "
        f"In percent, with 95 % bootstrap intervals over questions. Data {result.digest}, {result.when}.\n"
    )
    for what, count in result.counts.items():
        yield f"- {count:,} {what}"
    yield ""
    metrics = ("turn_r10", "session_r5", "session_any5", "touched", "recall_in_budget", "precision_in_budget")
    yield from _table(
        ["way", *(TITLES[m] for m in metrics), "tokens", "ms a question", "doubted: without an answer", "with one"],
        [
            [
                name,
                *(str(result.interval(name, m)) for m in metrics),
                f"{statistics.fmean(s.tokens for s in result.scores[name]):,.0f}",
                f"{result.ms(name):.1f}",
                "{} of {}".format(*result.doubted(name, answerable=False)),
                "{} of {}".format(*result.doubted(name, answerable=True)),
            ]
            for name in result.scores
        ],
    )
    categories = sorted(
        {name for name, ok in zip(result.categories, result.answerable, strict=True) if ok},
        key=lambda name: (-result.categories.count(name), name),
    )
    yield "\n## Turn R@10 by category\n"
    sizes = {name: len(result.values(next(iter(result.scores)), "turn_r10", name)) for name in categories}
    yield from _table(
        [
            "way",
            *(f"{name} ({sizes[name]})" for name in categories),
        ],
        [[name, *(str(result.interval(name, "turn_r10", c)) for c in categories)] for name in result.scores],
    )
    if "active" in result.scores:
        yield "\n## The active way, beside each other way (paired, turn R@10)\n"
        rows = []
        for name in result.scores:
            if name != "active":
                rows.append(
                    [name, str(result.versus(name, "active", "turn_r10")),
                     *(str(result.versus(name, "active", "turn_r10", c)) for c in categories)]
                )  # fmt: skip
        yield from _table(["active is … than", "all", *categories], rows)
    if result.curves:
        yield "\n## Turn R@10 after each round of the walk\n"
        deepest = max(len(curve) for curve in result.curves.values())
        headers = ["way", "the first search", *(f"round {n}" for n in range(1, deepest))]
        yield from _table(
            headers,
            [
                [name, *(f"{100 * each:.1f}" for each in curve), *[""] * (deepest - len(curve))]
                for name, curve in result.curves.items()
            ],
        )
    if result.answers:
        yield "\n## Answered by a model\n"
        yield from _table(
            ["way", "answered", "F1", "judged correct", "said that nothing answers", "no answer that could be used"],
            [_answers(name, rows, result) for name, rows in result.answers.items()],
        )
        yield f"\nspent: {result.spent}"
    graph = result.graph
    rate = graph.passages / graph.seconds if graph.seconds else 0.0
    yield (
        f"\nGraph: {graph.passages:,} passages, {graph.edges:,} edges "
        f"({graph.edges / max(1, graph.passages):.1f} a passage), {graph.seconds:.1f} s ({rate:,.0f} passages/s). "
        f"Corpus: {result.add_seconds:.1f} s."
    )
    yield "\n" + ", ".join(f"{name} {version}" for name, version in result.versions.items())


def _answers(name: str, rows: Sequence[object], result: Result) -> list[str]:
    from memfs.evals.metrics import interval

    known = [row for row in rows if isinstance(row, dict)]
    graded = [float(row["correct"]) for row in known if "correct" in row]
    none = sum(not row.get("answerable", True) for row in known)
    return [
        name, f"{len(known):,} of {len(result.questions):,}", str(interval([row["f1"] for row in known], result.seed)),
        str(interval(graded, result.seed)) if graded else "not judged", f"{none} of {len(known)}",
        str(sum("nonsense" in row for row in known)),
    ]  # fmt: skip


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headers)} |"
    yield "|" + "---|" * len(headers)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def compared_text(compared: Sequence[Comparison]) -> str:
    """Return each way beside itself in the earlier entry."""
    if not compared:
        return "no way is in both"
    return "\n".join(
        f"{each.way}: {TITLES[each.metric]} {100 * each.before:.1f} -> {100 * each.now:.1f} over "
        f"{each.same_questions:,} questions; {each.test}"
        for each in compared
    )
