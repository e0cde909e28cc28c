import runpy
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_the_tables_are_those_of_the_rows():
    made = runpy.run_path(str(FOLDER / "tables.py"))["page"]()
    assert (FOLDER / "TABLES.md").read_text() == made, "python benchmarks/tables.py writes it anew"
