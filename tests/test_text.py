"""Tables as text: the same everywhere."""

from rich.table import Table

from rekindle.text import number, render


def table(**cells):
    made = Table(*cells, title="a title", title_justify="left")
    made.add_row(*cells.values())
    return made


def test_every_cell_stands_under_its_header_without_colors_or_trailing_blanks():
    text = render(table(tensor="[bold]fc.weight[/bold]", norm="1.5"))
    assert "\x1b" not in text and "[bold]fc.weight[/bold]" in text, "names are no markup"
    lines = text.splitlines()
    assert lines[0] == "a title" and all(line == line.rstrip() for line in lines)
    header, row = (next(line for line in lines if word in line) for word in ("tensor", "fc.weight"))
    assert header.index("norm") == row.index("1.5")


def test_the_terminal_does_not_decide(monkeypatch):
    before = render(table(a="x" * 200))
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert render(table(a="x" * 200)) == before
    assert (
        max(map(len, before.splitlines())) == 140 and max(map(len, render(table(a="x" * 200), 50).splitlines())) == 50
    )


def test_numbers_have_four_digits_at_the_most():
    values = [0.000123456, 1234.56, 123456.0, 12.0, float("nan"), None]
    assert [number(value) for value in values] == ["0.0001235", "1235", "1.235e+05", "12", "nan", ""]
