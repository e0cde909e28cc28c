"""Folders that are there as a whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from rekindle.errors import RekindleError
from rekindle.lab.data.folders import told, whole_folder


def content(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def write(target, text, replaces=None):
    with whole_folder(target, replaces) as draft:
        (draft / "a").write_text(text)
        assert draft.name == f"{target.name}.part-{os.getpid()}"
        assert not target.exists() or content(target) == {"a": "old"}


def test_it_is_there_when_all_went_well(tmp_path):
    write(tmp_path / "deep" / "new", "text")
    assert content(tmp_path) == {"deep/new/a": "text"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("old", [False, True])
def test_an_interrupted_one_leaves_nothing(tmp_path, error, old):
    if old:
        write(tmp_path / "mine", "old")
    before = content(tmp_path)
    with pytest.raises(error), whole_folder(tmp_path / "mine", ["a"]) as draft:
        (draft / "a").write_text("half")
        raise error
    assert content(tmp_path) == before and len(list(tmp_path.iterdir())) == old


def test_what_is_there_is_replaced_only_when_asked_for(tmp_path):
    write(tmp_path / "mine", "old")
    with pytest.raises(RekindleError, match="--replace"):
        write(tmp_path / "mine", "new")
    assert content(tmp_path) == {"mine/a": "old"}
    write(tmp_path / "mine", "new", replaces=["a"])
    assert content(tmp_path) == {"mine/a": "new"} and len(list(tmp_path.iterdir())) == 1


def test_only_what_is_of_the_same_kind_is_replaced(tmp_path):
    mine = tmp_path / "mine"
    write(mine, "old")
    (mine / "thesis.tex").write_text("years of work")
    link = tmp_path / "link"
    link.symlink_to(mine)
    (tmp_path / "file").write_text("no folder")
    for place, got in ((mine, "thesis.tex"), (link, "no folder"), (tmp_path / "file", "no folder")):
        with pytest.raises(RekindleError) as error:
            write(place, "new", replaces=["a"])
        assert error.value.got == got
    assert content(mine) == {"a": "old", "thesis.tex": "years of work"} and link.is_symlink()


def test_the_old_one_comes_back_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    write(tmp_path / "mine", "old")
    rename = Path.rename

    def refuse(self, target):
        if ".part-" in self.name:
            raise OSError(errno.EIO, "no more")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(RekindleError, match="no more"):
        write(tmp_path / "mine", "new", replaces=["a"])
    assert content(tmp_path) == {"mine/a": "old"} and len(list(tmp_path.iterdir())) == 1


def test_another_process_that_was_faster_is_not_overwritten(tmp_path):
    with pytest.raises(RekindleError, match="is there already"), whole_folder(tmp_path / "mine") as draft:
        (draft / "a").write_text("slow")
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "a").write_text("fast")
    assert content(tmp_path) == {"mine/a": "fast"}


def test_a_draft_of_a_killed_process_with_our_number_is_not_taken(tmp_path):
    (tmp_path / f"mine.part-{os.getpid()}").mkdir()
    with pytest.raises(RekindleError, match="a killed process left it behind"):
        write(tmp_path / "mine", "new")


def test_a_full_disk_is_told_in_three_parts(tmp_path):
    with pytest.raises(RekindleError, match="No space left on device") as error, told(tmp_path / "x"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(tmp_path / "x") in error.value.expected and "--folder" in error.value.fix
