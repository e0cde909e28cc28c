"""A file is the old one or all of the new one."""

import os
import threading

import pytest

from rekindle import files
from rekindle.files import write_whole


def test_it_is_written_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "rows.jsonl"
    for text in ("", "ein Stück\n", "shorter"):
        write_whole(path, text)
        assert path.read_text("utf-8") == text
        assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    write_whole(path, "old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["rows.jsonl"]


def test_the_content_is_on_disk_before_the_name_points_to_it(tmp_path, monkeypatch):
    order = []
    replace, sync = os.replace, os.fsync
    monkeypatch.setattr(files.os, "replace", lambda *paths: (order.append("name"), replace(*paths)))
    monkeypatch.setattr(files.os, "fsync", lambda handle: (order.append("content"), sync(handle)))
    write_whole(tmp_path / "a", "text")
    assert order[:2] == ["content", "name"]


def test_a_reader_never_sees_a_part(tmp_path):
    path, seen, done = tmp_path / "a", set(), threading.Event()
    texts = ["x" * 100_000, "y" * 200_000]
    write_whole(path, texts[0])

    def read():
        while not done.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(20):
        write_whole(path, texts[n % 2])
    done.set()
    reader.join()
    assert seen and seen <= set(texts)
