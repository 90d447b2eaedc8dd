"""Claude Code sessions: every trap of the format, on small hand-made files, on recorded ones, and on garbage."""

from __future__ import annotations

import io
import json
import os
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memfs
from memfs.corpus.records import Document, Passage, Skipped
from memfs.corpus.sources import claude_code
from memfs.corpus.sources.claude_code import LINE_BYTES_MAX, read, sniff

DATA = (
    Path(os.environ.get("MEMFS_DATA") or Path(__file__).parents[2] / "shared" / "data") / "transcripts" / "claude-code"
)
SAMPLES = Path(memfs.__file__).parent / "samples" / "claude-code"
FILE_ID = "2d984148-cddb-4605-aac1-13e720fe613c"
HEADING = re.compile(r"^## (t\d+) ·", re.MULTILINE)

Row = dict[str, object]


def row(kind: str, uuid: str, content: object, parent: str | None = None, **more: object) -> Row:
    message: Row = {"role": kind, "content": content}
    if kind == "assistant":
        message["id"] = more.pop("id", f"msg_{uuid}")
    return {
        "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s1", "timestamp": "2026-03-01T10:00:00.000Z",
        "message": message, **more,
    }  # fmt: skip


def encoded(*rows: Row | bytes) -> bytes:
    return b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in rows)


def results(data: bytes, name: str = "x.jsonl") -> list[Document | Skipped]:
    return list(read(io.BytesIO(data), name=name, under="sessions/"))


def documents(*rows: Row | bytes, name: str = "x.jsonl") -> list[Document]:
    return [found for found in results(encoded(*rows), name) if isinstance(found, Document)]


def reasons(*rows: Row | bytes) -> list[str]:
    return [found.reason for found in results(encoded(*rows)) if isinstance(found, Skipped)]


def turns(*rows: Row | bytes) -> list[tuple[str | None, str | None]]:
    """Return (speaker, text) of each turn of the one session in `rows`."""
    (document,) = documents(*rows)
    return [(passage.speaker, passage.text) for passage in document.passages if passage.anchor]


def notes(*rows: Row) -> list[str]:
    """Return what follows the time in each turn's heading."""
    (document,) = documents(*rows)
    return [line.partition("10:00")[2].strip(" ·") for line in body(document).splitlines() if HEADING.match(line)]


def body(document: Document) -> str:
    return b"".join(passage.body for passage in document.passages).decode("utf-8")


def text(value: str) -> Row:
    return {"type": "text", "text": value}


def use(tool: str, key: str = "toolu_1", **arguments: object) -> Row:
    return {"type": "tool_use", "id": key, "name": tool, "input": arguments}


def result(content: object, **more: object) -> Row:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}


# Messages and blocks


def test_lines_of_one_message_are_one_turn() -> None:
    """One API message, a line a block, with a tool result in between, is one turn at its first place and time."""
    assert turns(
        row("user", "u1", "hi"),
        row("assistant", "a1", [text("I look.")], "u1", id="m"),
        row("assistant", "a2", [use("Bash", command="git status")], "a1", id="m", timestamp="2026-03-01T10:00:09Z"),
        row("user", "r1", [result("clean")], "a2"),
        row("assistant", "a3", [text("All clean.")], "r1", id="m"),
    ) == [("user", "hi"), ("assistant", "I look.\n\n→ Bash: git status\n\nAll clean."), ("tool", "clean")]


def test_a_message_rewritten_while_streaming_keeps_the_fullest_content() -> None:
    """The same message id with more text, under new or equal uuids, replaces; a tool call is known by its id."""
    assert turns(
        row("assistant", "a1", [text("Hel")], id="m"),
        row("assistant", "a2", [text("Hello")], id="m"),
        row("assistant", "a3", [text("Hello world"), use("Read", file_path="/a")], id="m"),
        row("assistant", "a3", [text("Hello world."), use("Read", file_path="/b")], id="m"),
        row("assistant", "a4", [text("Hello")], id="m"),
    ) == [("assistant", "Hello world.\n\n→ Read: /b")]


def test_thinking_is_left_out_and_takes_no_number() -> None:
    """A thinking-only line gives no turn, also when the message's text comes after another turn."""
    rows = [
        row("assistant", "a1", [{"type": "thinking", "thinking": "SECRET", "signature": "x"}], id="m"),
        row("user", "u1", "first"),
        row("assistant", "a2", [text("second")], id="m"),
    ]
    assert turns(*rows) == [("user", "first"), ("assistant", "second")]
    assert "1 thinking blocks" in reasons(*rows)


def test_a_repeated_uuid_keeps_the_last_content_at_the_first_place() -> None:
    """A rewritten record changes its turn's text, not its number; an empty rewrite changes nothing."""
    assert turns(
        row("user", "u1", "draft"), row("user", "u2", "next"), row("user", "u1", "final"), row("user", "u2", "")
    ) == [("user", "final"), ("user", "next")]


def test_rows_without_ids_are_each_a_turn() -> None:
    """Neither uuid nor message id is needed."""
    bare: list[Row] = [
        {"type": "assistant", "sessionId": "s1", "message": {"content": f"answer {n}"}, "uuid": 5} for n in range(3)
    ]
    assert [said for _, said in turns(*bare)] == ["answer 0", "answer 1", "answer 2"]


def test_a_tool_call_is_one_line() -> None:
    """The telling argument on one line, clipped with the clipped size said; without text, names and sizes."""
    calls = [
        use("Bash", "1", description="d", command="echo a\necho b"),
        use("Write", "2", content="x" * 9000, file_path="/a.py"),
        use("Task", "3", prompt="p", description="Look"),
        use("Ask", "4", questions=[1, 2]),
        use("Custom", "5", zeta="z" * 1300),
        use("Empty", "6"),
    ]
    assert turns(row("assistant", "a1", calls))[0][1] == "\n\n".join(
        [
            "→ Bash: echo a echo b", "→ Write: /a.py", "→ Task: Look", "→ Ask: questions=[2]",
            f"→ Custom: {'z' * 200}… [1,100 more characters left out]", "→ Empty",
        ]
    )  # fmt: skip


def test_a_tool_result_is_clipped_and_an_error_marked() -> None:
    """600 characters and the count of the rest; a tool result is never the user's speech."""
    said = turns(
        row("user", "r1", [result("y" * 12_945)], toolUseResult={"originalFile": "z" * 50}),
        row("user", "r2", [result([text("boom")], is_error=True)]),
        row("user", "r3", [result(None)]),
        row("user", "r4", [result("\n  1→a\n<system-reminder>x</system-reminder>"), text("and my comment")]),
    )
    assert said == [
        ("tool", "y" * 600 + "… [12,345 more characters left out]"),
        ("tool", "[error]\nboom"),
        ("tool", "[no output]"),
        ("tool", "  1→a"),
        ("user", "and my comment"),
    ]


def test_payloads_become_markers() -> None:
    """Images and documents are shown by kind and size, wherever they stand; their base64 is nowhere."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUFB" * 41_000}}
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "QUE="}}
    rows = [row("user", "u1", [text("see"), image, document]), row("user", "u2", [result([image])])]
    assert turns(*rows) == [
        ("user", "see\n\n[image png, 123 kB]\n\n[document pdf, 2 B]"),
        ("tool", "[image png, 123 kB]"),
    ]
    assert "QUFB" not in body(documents(*rows)[0])


# Who speaks


@pytest.mark.parametrize(
    "said",
    [
        "Caveat: The messages below were generated by the user", "<local-command-stdout>out</local-command-stdout>",
        "<local-command-caveat>x</local-command-caveat>", "Stop hook feedback: do it",
        "<system-reminder>read this</system-reminder>", "<command-name>/clear</command-name>",
        "<command-message>clear</command-message>\n<command-name>/clear</command-name>",
    ],
)  # fmt: skip
def test_machinery_is_left_out_and_counted(said: str) -> None:
    """What the client writes under the user's name is no turn."""
    rows = [row("user", "u1", said), row("user", "u2", "mine")]
    assert turns(*rows) == [("user", "mine")]
    assert len(reasons(*rows)) == 1


@pytest.mark.parametrize("flag", ["isMeta", "isVisibleInTranscriptOnly"])
def test_flagged_text_is_left_out(flag: str) -> None:
    """A user record with a flag of the client is not the user's."""
    assert turns({**row("user", "u1", "injected"), flag: True}, row("user", "u2", "mine")) == [("user", "mine")]


def test_events_are_kept_as_the_systems() -> None:
    """Interruptions and background tasks tell what happened, but nobody typed them."""
    rows = [
        row("user", "u1", "[Request interrupted by user]"),
        row("user", "u2", "<task-notification>done</task-notification>"),
        row("user", "u3", "from a channel", origin={"kind": "channel"}),
        row("user", "u4", "typed", origin={"kind": "human"}),
    ]
    assert [speaker for speaker, _ in turns(*rows)] == ["system", "system", "system", "user"]
    assert [note.split(" · ")[-1] for note in notes(*rows)] == ["injected", "injected", "injected", "u4"]


def test_reminders_inside_a_prompt_are_cut_out() -> None:
    """The client appends reminders to what a person typed, in the same text or as a block of its own."""
    reminder = "<system-reminder>SECRET</system-reminder>"
    rows = [row("user", "u1", f"one {reminder}two{reminder}"), row("user", "u2", [text("three"), text(reminder)])]
    assert turns(*rows) == [("user", "one two"), ("user", "three")]


def test_commands_are_taken_from_their_tags() -> None:
    """A slash command and a `!` command are the user's, noted as commands; the `!` output is the tool's."""
    name = "<command-name>/go</command-name>"
    rows = [
        row("user", "u1", f"<command-message>go</command-message>\n{name}\n<command-args>a b</command-args>"),
        row("user", "u2", "<bash-input>ls -l</bash-input>"),
        row("user", "u3", "<bash-stdout>total 0</bash-stdout><bash-stderr></bash-stderr>"),
    ]  # fmt: skip
    assert turns(*rows) == [("user", "/go a b"), ("user", "! ls -l"), ("tool", "total 0")]
    assert [note.endswith("command") for note in notes(*rows)] == [True, True, False]


def test_a_queued_prompt_is_the_users() -> None:
    """What is typed while the model works is kept as an attachment; other attachments are counted."""
    queued: Row = {"type": "attachment", "uuid": "q1", "sessionId": "s1"}
    prompt = {"type": "queued_command", "prompt": [text("also this")], "commandMode": "prompt", "source_uuid": "z"}
    task = {"type": "queued_command", "prompt": "done", "commandMode": "task-notification"}
    rows = [
        row("user", "u1", "start"),
        {**queued, "attachment": prompt},
        {**queued, "uuid": "q2", "attachment": task},
        {**queued, "uuid": "q3", "attachment": {"type": "file", "content": "SECRET"}},
    ]
    assert turns(*rows) == [("user", "start"), ("user", "also this"), ("system", "done")]
    assert reasons(*rows) == ["1 rows of type attachment"]


def test_client_made_answers_are_left_out() -> None:
    """API errors and synthetic messages are not the assistant's speech."""
    synthetic = row("assistant", "a2", [text("No response requested.")])
    synthetic["message"] = {**synthetic["message"], "model": "<synthetic>"}  # type: ignore[dict-item]
    rows = [row("user", "u1", "hi"), row("assistant", "a1", [text("API Error")], isApiErrorMessage=True), synthetic]
    assert turns(*rows) == [("user", "hi")]


# The tree


def test_a_rewound_branch_is_kept_and_noted() -> None:
    """An edited prompt leaves its old branch in the file, in order, marked; the new one is not marked."""
    rows = [
        row("user", "u1", "one"),
        row("assistant", "a1", [text("1")], "u1"),
        row("user", "u2", "old", "a1"),
        row("assistant", "a2", [text("old answer")], "u2"),
        row("user", "u3", "new", "a1"),
        row("assistant", "a3", [text("new answer")], "u3"),
    ]
    assert [note.endswith("rewound") for note in notes(*rows)] == [False, False, True, True, False, False]


def test_parents_are_followed_through_rows_that_are_not_shown() -> None:
    """A parent that is progress, an attachment or a compaction boundary does not cut the branch."""
    rows: list[Row] = [
        row("user", "u1", "one"),
        row("user", "old", "left behind", "u1"),
        {"type": "progress", "uuid": "p1", "parentUuid": "u1", "sessionId": "s1"},
        {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "logicalParentUuid": "p1", "sessionId": "s1"},
        row("user", "u2", "This session is being continued from before.", "c1", isCompactSummary=True),
        row("assistant", "a1", [text("go on")], "u2"),
    ]
    assert [note.endswith("rewound") for note in notes(*rows)] == [False, True, False, False]


def test_parallel_tool_results_are_not_rewound() -> None:
    """Results of parallel calls hang beside the branch; nobody went back."""
    rows = [
        row("user", "u1", "go"),
        row("assistant", "a1", [use("Read", "t1", file_path="/a")], "u1", id="m"),
        row("assistant", "a2", [use("Read", "t2", file_path="/b")], "a1", id="m"),
        row("user", "r1", [result("A")], "a1"),
        row("user", "r2", [result("B")], "a2"),
        row("assistant", "a3", [text("both")], "r1"),
    ]
    assert not any("rewound" in note for note in notes(*rows))


def test_other_roots_dangling_parents_and_cycles_mark_nothing() -> None:
    """Without a common ancestor file order is all we know."""
    rows = [
        row("user", "u1", "one"),
        row("user", "u2", "two", "gone"),
        row("user", "u3", "three", "u4"),
        row("user", "u4", "four", "u3"),
        row("user", "u5", "five", "u5"),
    ]
    assert not any("rewound" in note for note in notes(*rows))


def test_sidechains_are_noted_and_never_the_users() -> None:
    """A subagent's turns stay in file order under a note; its prompt is the assistant's."""
    rows = [
        row("user", "u1", "main"),
        row("user", "x1", "do research", isSidechain=True),
        row("assistant", "x2", [text("found")], "x1", isSidechain=True),
        row("assistant", "a1", [text("thanks")], "u1"),
    ]
    assert [speaker for speaker, _ in turns(*rows)] == ["user", "assistant", "assistant", "assistant"]
    assert [note.partition(" · ")[2] for note in notes(*rows)] == ["", "prompt, sidechain", "sidechain", ""]


def test_a_compaction_summary_is_a_summary() -> None:
    """Flag or wording: its speaker is `summary`, it is whole, and history above stays."""
    long = "This session is being continued. " + "word " * 2000
    rows = [
        row("user", "u1", "before"),
        row("user", "u2", "anything", isCompactSummary=True, isVisibleInTranscriptOnly=True),
        row("user", "u3", long),
    ]
    assert [speaker for speaker, _ in turns(*rows)] == ["user", "summary", "summary"]
    assert len(turns(*rows)[2][1] or "") > 10_000
    assert notes(*rows)[1].endswith("compaction")


# Identity, titles, copies


def test_the_title_improves_but_the_path_stays() -> None:
    """custom-title > ai-title > agent-name > own summary > first prompt; the path knows only the first turn."""
    rows: list[Row | bytes] = [
        {"type": "summary", "summary": "Of another session", "leafUuid": "elsewhere"},
        row("user", "c", "<command-name>/clear</command-name>"),
        row("user", "u1", "Fix the salt"),
    ]
    later: list[Row] = [
        {"type": "summary", "summary": "Own summary", "leafUuid": "u1"},
        {"type": "agent-name", "agentName": "Agent", "sessionId": "s1"},
        {"type": "ai-title", "aiTitle": "AI title", "sessionId": "s1"},
        {"type": "custom-title", "customTitle": "Custom", "sessionId": "s1"},
        {"type": "ai-title", "aiTitle": "Late AI title", "sessionId": "s1"},
    ]
    seen_titles, seen_paths = [], set()
    for count in range(len(later) + 1):
        (document,) = documents(*rows, *later[:count])
        seen_titles.append(document.title)
        seen_paths.add(document.path)
    assert seen_titles == ["Fix the salt", "Own summary", "Agent", "AI title", "Custom", "Custom"]
    assert len(seen_paths) == 1
    assert "/2026/03/2026-03-01-fix-the-salt-" in seen_paths.pop()


def test_a_uuid_as_file_name_is_the_session() -> None:
    """A fork begins with the parent's records; all is one session, that of the file."""
    rows = [row("user", "u1", "copied", sessionId="parent"), row("user", "u2", "new", sessionId=FILE_ID)]
    (document,) = documents(*rows, name=f"projects/-home-x/{FILE_ID}.jsonl")
    assert document.source == f"claude-code:{FILE_ID}"


def test_other_file_names_leave_the_identity_to_the_records() -> None:
    """Several sessions in one file are several documents; without any session id the file's name serves."""
    rows = [row("user", "u1", "a"), row("user", "u2", "b", sessionId="s2"), row("assistant", "u3", "c")]
    assert [document.source for document in documents(*rows)] == ["claude-code:s1", "claude-code:s2"]
    bare = row("user", "u1", "a")
    del bare["sessionId"]
    assert documents(bare, name="old.jsonl")[0].source == "claude-code:old"


def test_an_agent_file_is_its_own_session() -> None:
    """A subagent's file carries its parent's session id and must not land on the parent's path."""
    (document,) = documents(row("user", "x1", "look", isSidechain=True), name="agent-e1c84ba5.jsonl")
    assert document.source == "claude-code:s1/agent-e1c84ba5"
    assert "agent-look-" in document.path


def test_a_fork_keeps_its_history_under_the_same_ids() -> None:
    """A fork's copied turns keep their uuids as origin, by which recall knows them for copies."""
    shared = [row("user", "u1", "one"), row("assistant", "a1", [text("two")], "u1")]
    (parent,) = documents(*shared)
    (fork,) = documents(*shared, row("user", "u2", "three", "a1"), name=f"{FILE_ID}.jsonl")
    assert fork.path != parent.path
    assert [p.origin for p in fork.passages][:3] == [p.origin for p in parent.passages]


def test_the_header_says_where_and_with_what() -> None:
    """cwd, branch, version and model of the first record that has them."""
    (document,) = documents(row("user", "u1", "hi", cwd="/home/x", gitBranch="main", version="2.1.0"))
    assert "- cwd: /home/x\n- git branch: main\n- client version: 2.1.0\n" in body(document)


# Bytes


def test_bad_lines_are_counted_and_cost_nothing_else() -> None:
    """BOM, CRLF, blanks, garbage, invalid UTF-8, wrong types, deep nesting and a cut-off last line."""
    good = json.dumps(row("user", "u1", "hello")).encode()
    data = (
        b"\xef\xbb\xbf" + good + b"\r\n\r\n   \n{not json}\n[1]\n\x00\x00\n" + b"[" * 100_000 + b"\n"
        + b'{"type":["user"],"sessionId":"s1"}\n{"type":"user","sessionId":"s1","message":7}\n{"type":"new-kind"}\n'
        + b'{"type":"user","uuid":"u2","sessionId":"s1","message":{"content":"raw \x0b \xe2\x80\xa8 \xff"}}\n'
        + good[:-9]
    )  # fmt: skip
    document, *skipped = results(data)
    assert isinstance(document, Document)
    assert [p.text for p in document.passages if p.anchor] == ["hello", "raw \n \n \ufffd"]
    assert sorted(found.reason for found in skipped if isinstance(found, Skipped)) == [
        "1 messages without content",
        "1 rows of type new-kind",
        "1 rows without a type",
        "5 lines that are not a JSON object (garbage, or cut off)",
    ]


def test_a_line_above_the_cap_is_read_past() -> None:
    """The lines before and after it are taken, the line is counted."""
    data = encoded(row("user", "u1", "before"), b'{"x":"' + b"y" * LINE_BYTES_MAX + b'"}', row("user", "u2", "after"))
    document, skipped = results(data)
    assert isinstance(document, Document)
    assert [p.text for p in document.passages if p.anchor] == ["before", "after"]
    assert skipped == Skipped("x.jsonl", "1 lines longer than 64 MiB")


class _Endless(io.RawIOBase):
    """A file made of the lines of an iterator, never held whole."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._rest = self._rest or next(self._lines, b"")
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def test_memory_follows_the_transcript_not_the_file() -> None:
    """A 40 MB file of big payloads is read in less than a tenth of that."""
    payload = "x" * 250_000
    lines = (
        encoded(row("user", f"r{n}", [result(payload)], toolUseResult={"originalFile": payload})) for n in range(80)
    )
    stream: BinaryIO = io.BufferedReader(_Endless(lines))
    tracemalloc.start()
    found = list(read(stream, name="x.jsonl", under="s/"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found[0], Document)
    assert len(found[0].passages) == 81
    assert peak < 4_000_000


def test_sniff() -> None:
    """Session files are known by their first rows, even one row longer than the head; kin are not taken."""
    assert sniff(encoded(row("user", "u1", "x")))
    assert sniff(b"\xef\xbb\xbf" + encoded(row("user", "u1", "x")))
    assert sniff(encoded({"type": "summary", "summary": "s", "leafUuid": "u"}))
    assert sniff(encoded({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}))
    assert sniff(b'{"parentUuid":null,"sessionId":"s","type":"user","message":{"content":"' + b"x" * 4096)
    assert not sniff(encoded({"display": "x", "pastedContents": {}, "timestamp": 1, "project": "/", "sessionId": "s"}))
    assert not sniff(encoded({"timestamp": "t", "type": "session_meta", "payload": {"id": "i"}}))
    assert not sniff(encoded({"type": "session", "id": "i", "cwd": "/"}))
    assert not sniff(encoded({"messages": [{"role": "user", "content": "x"}]}))
    assert not sniff(b"# aider chat started at 2024-08-05 19:33:02\n")
    assert not sniff(b"")


@pytest.mark.parametrize("name", ["history.jsonl", "a/sessions-index.json", "C:\\x\\history.jsonl"])
def test_kin_files_are_not_sessions(name: str) -> None:
    """The prompt history and the index are refused by name, with a reason."""
    (skipped,) = results(encoded(row("user", "u1", "x")), name)
    assert isinstance(skipped, Skipped)
    assert "not a session" in skipped.reason


def test_a_file_without_a_session_says_so() -> None:
    """Nothing in, a reason out; many unknown types do not become many reasons."""
    assert reasons() == ["no session in it"]
    unknown: list[Row] = [{"type": f"kind-{n}"} for n in range(1000)]
    assert len(reasons(*unknown)) <= claude_code.REASONS_MAX + 2


@pytest.mark.parametrize(
    ("stamp", "shown"),
    [
        ("2026-03-01T10:00:00.123Z", "2026-03-01 10:00"), ("2026-03-01T12:00:00+02:00", "2026-03-01 10:00"),
        ("2026-03-01T10:00:00", "2026-03-01 10:00"), ("2026-03-01T10:00:00.1234567Z", "2026-03-01 10:00"),
        (1772359200, "2026-03-01 10:00"), (1772359200123, "2026-03-01 10:00"), (float("nan"), None),
        (float("inf"), None), (10**30, None), (-1, None), (True, None), ("0001-01-01T00:00:00+23:00", None),
        ("soon", None), (None, None), ([], None),
    ],
)  # fmt: skip
def test_times(stamp: object, shown: str | None) -> None:
    """ISO with any zone or decimals and epoch numbers become UTC; anything else is no time."""
    (document,) = documents(row("user", "u1", "x", timestamp=stamp))
    assert (f"· {shown} ·" in body(document)) == (shown is not None)
    assert ("undated" in document.path) == (shown is None)


# Any input

IDS = st.sampled_from(["a", "b", "c", "d", "\ud800", "m" * 40, ""]) | st.none()
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | IDS
SAID = st.sampled_from(
    ["hi", "## t1 · user · x", "<system-reminder>x", "<command-name>/go</command-name>", "[Request interrupted",
     "This session is being continued", "\ud83d \x1b[31m\x00", "<bash-input>ls</bash-input>", "", "\u2028## t9 · x"]
) | st.text(alphabet=st.characters(exclude_categories=()), max_size=40)  # fmt: skip
BLOCK = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image", "other"]) | SCALARS,
        "text": SAID | SCALARS, "id": IDS, "name": SAID | SCALARS, "is_error": st.booleans(),
        "input": st.dictionaries(st.text(max_size=5), SCALARS | SAID, max_size=3) | SCALARS,
        "content": SAID | SCALARS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": SAID}) | SCALARS),
        "source": st.dictionaries(st.sampled_from(["type", "media_type", "data"]), SCALARS) | SCALARS,
    },
)  # fmt: skip
CONTENT = SAID | SCALARS | st.lists(BLOCK | SCALARS, max_size=3)
ROW = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "system", "attachment", "summary", "ai-title"]) | SCALARS},
    optional={
        "uuid": IDS | SCALARS, "parentUuid": IDS | SCALARS, "logicalParentUuid": IDS, "sessionId": IDS | SCALARS,
        "timestamp": st.just("2026-01-01T00:00:00Z") | SCALARS | st.datetimes().map(str), "isSidechain": SCALARS,
        "isMeta": st.booleans(), "aiTitle": SAID | SCALARS, "summary": SAID, "leafUuid": IDS, "cwd": SAID | SCALARS,
        "message": st.fixed_dictionaries({}, optional={"id": IDS, "content": CONTENT, "model": SCALARS}) | SCALARS,
        "attachment": st.fixed_dictionaries({"type": st.just("queued_command"), "prompt": CONTENT}) | SCALARS,
        "origin": st.dictionaries(st.just("kind"), SCALARS) | SCALARS,
    },
)  # fmt: skip
LINE = ROW.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60)
LINES = st.lists(LINE, max_size=12).map(lambda lines: b"".join(line + b"\n" for line in lines))
RELAXED = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = st.sampled_from(["x.jsonl", f"{FILE_ID}.jsonl", "agent-1.jsonl"])


def _said(document: Document) -> dict[str, tuple[str | None, str | None]]:
    return {p.anchor: (p.speaker, p.origin) for p in document.passages if p.anchor}


@given(LINES | st.binary(max_size=400), NAMES)
@RELAXED
def test_no_input_raises_or_forges(data: bytes, name: str) -> None:
    """Any rows and any bytes give valid UTF-8, one heading per anchor, anchors in order, and paths that differ."""
    found = [x for x in results(data, name) if isinstance(x, Document)]
    for document in found:
        anchors = list(dict.fromkeys(p.anchor for p in document.passages if p.anchor))
        assert HEADING.findall(body(document)) == anchors
        numbers = [int(anchor[1:]) for anchor in anchors]
        assert numbers == sorted(set(numbers))
        assert all(p.body.endswith(b"\n") for p in document.passages)
    assert len({document.path for document in found}) == len(found)


@given(LINES, LINES, NAMES)
@RELAXED
def test_appending_never_renumbers(before: bytes, more: bytes, name: str) -> None:
    """When a file grows, each session keeps its path, and each anchor its speaker and origin."""
    grown = {x.path: _said(x) for x in results(before + more, name) if isinstance(x, Document)}
    for document in results(before, name):
        if isinstance(document, Document):
            assert document.path in grown
            assert _said(document).items() <= grown[document.path].items()


# Recorded files


def recorded(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no recorded session at {path}; set MEMFS_DATA to the folder that holds transcripts/")
    return path


def counted(path: Path) -> tuple[int, int, int]:
    """Count prompts, API messages and records with tool results in a recorded file, apart from the reader."""
    rows = [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]
    messages = {r["message"]["id"] for r in rows if r["type"] == "assistant"}
    contents = [r["message"]["content"] for r in rows if r["type"] == "user" and not r.get("isMeta")]
    prompts = [c for c in contents if isinstance(c, str) and not c.startswith(("<", "[Request"))]
    tools = [c for c in contents if isinstance(c, list) and c[0]["type"] == "tool_result"]
    return len(prompts), len(messages), len(tools)


@pytest.mark.parametrize(
    ("name", "expected", "system"),
    [("real-89-lines.jsonl", (3, 30, 27), 0), ("real-41-lines-slash-commands.jsonl", (4, 11, 10), 2)],
)
def test_recorded_sessions(name: str, expected: tuple[int, int, int], system: int) -> None:
    """The turns are as many as the prompts, API messages and tool results; nothing is rewound or raw."""
    path = recorded(name)
    assert counted(path) == expected
    found = results(path.read_bytes(), name)
    (document,) = [x for x in found if isinstance(x, Document)]
    speakers = [speaker for speaker, _ in _said(document).values()]
    assert tuple(map(speakers.count, ("user", "assistant", "tool", "system"))) == (*expected, system)
    assert "rewound" not in body(document)
    assert "\x1b" not in body(document)
    assert sniff(path.read_bytes()[:4096])
    assert document.size < path.stat().st_size / 5


def test_the_recorded_lines_and_sidechain() -> None:
    """Each single line reads; the sidechain file has 2 turns of a subagent and its result, noted."""
    recorded("lines/tool-todowrite.jsonl")
    found = [x for path in sorted((DATA / "lines").glob("*.jsonl")) for x in results(path.read_bytes(), path.name)]
    assert sum(isinstance(x, Document) for x in found) == 4
    side = recorded("abridged-real-sidechain-6-lines.jsonl")
    (document,) = [x for x in results(side.read_bytes(), side.name) if isinstance(x, Document)]
    assert len(_said(document)) == 5
    assert body(document).count("· sidechain\n") == 2


# The sessions that ship


def test_the_shipped_samples_read_without_loss() -> None:
    """12 sessions of one persona, one a file, and the quickstart's question answered within one turn."""
    files = sorted(SAMPLES.glob("*.jsonl"))
    found = [x for path in files for x in results(path.read_bytes(), path.name)]
    taken = [x for x in found if isinstance(x, Document)]
    assert len(files) == len(taken) == len({x.path for x in taken}) == 12
    passages: list[Passage] = [p for x in taken for p in x.passages if p.anchor]
    answers = [p for p in passages if "moved the database from MySQL to Postgres 17" in (p.text or "")]
    assert len(answers) == 1
    assert "16 May 2026" in (answers[0].text or "")
