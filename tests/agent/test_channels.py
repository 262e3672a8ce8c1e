"""What a channel claims about the reads that a line or an object took."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.agent.channels import Channel
from harness.agent.journal import Journal

FIRST, SECOND = '{ "child-pid": 1 }\n', '{ "exit-code": 7 }\n'


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[tuple[Journal, Path]]:
    path = tmp_path / "timeline"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    yield Journal(fd), path
    os.close(fd)


def reads_taken(writes: list[str], journal: tuple[Journal, Path]) -> list[tuple[str, int]]:
    """Write each text and read it at once; kind and reads of every line and object."""
    channel = Channel("status", {"option": "json-status-fd"}, 20)
    channel.open("/nonexistent")
    try:
        for text in writes:
            os.write(channel.near_fd, text.encode())
            channel.read_once(journal[0])
    finally:
        channel.close_near()
        channel.close_far()
    events = [json.loads(line) for line in journal[1].read_text().splitlines()]
    return [(event["kind"], event["data"]["fragments"]) for event in events]


@pytest.mark.parametrize(
    ("writes", "first", "second"),
    [
        ([FIRST, SECOND], 1, 1),
        ([FIRST + SECOND], 1, 1),
        (["{ ", '"child-pid": 1', " }\n", SECOND], 3, 1),
        ([FIRST, '{ "exit-', "code", '": 7 }\n'], 1, 3),
        ([FIRST + '{ "exit-', 'code": 7 }\n'], 1, 2),
    ],
    ids=["one each", "both in one", "first in three", "second in three", "second begins early"],
)
def test_a_read_counts_for_what_it_brought_a_part_of(
    writes: list[str], first: int, second: int, journal: tuple[Journal, Path]
) -> None:
    assert reads_taken(writes, journal) == [
        ("line-read", first),
        ("object-read", first),
        ("line-read", second),
        ("object-read", second),
    ]


def test_an_object_of_several_lines_counts_every_read(journal: tuple[Journal, Path]) -> None:
    taken = reads_taken(["{\n", '    "child-pid": 1', "\n}\n"], journal)
    assert taken == [("line-read", 1), ("line-read", 2), ("line-read", 1), ("object-read", 3)]
