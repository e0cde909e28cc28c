"""Results of older code are those of experiments that were measured, and stand in the index."""

from papers.catalog import EXPERIMENTS
from papers.index import find_rows, index
from papers.outdated import OUTDATED


def test_they_were_measured_and_are_in_the_index():
    page = index()
    for name, old in OUTDATED.items():
        assert find_rows(EXPERIMENTS[name]) is not None
        assert f"| {name} | {old.cells} | {old.why} |" in page


def test_the_index_of_an_empty_folder_has_none(tmp_path):
    assert not [name for name, old in OUTDATED.items() if old.why in index(tmp_path)]
