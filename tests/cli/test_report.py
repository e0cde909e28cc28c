import pytest

from rekindle.cli import main
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two methods and six seeds in two settings; the numbers are easy."""
    monkeypatch.chdir(tmp_path)
    store = Store("runs")
    for model in "mlp", "cnn":
        for seed in range(6):
            for method, accuracy in ("none", 0.5), ("soft_rescale", 0.75 + seed / 100):
                run = Run(model=model, methods=method, seed=seed)
                row = {"stage": 0, "epoch": 1, "event": "end", "accuracy": accuracy, "loss": 1.0, "seconds": 2.0}
                store.finish(store.claim(run), run, [row])
    return store


def test_page_and_tables(runs, capsys, tmp_path):
    pytest.importorskip("vl_convert")
    assert main(["report", "runs", "-o", "page.html", "--markdown", "t.md", "--latex", "t.tex"]) == 0
    said = capsys.readouterr().out
    assert "page: page.html" in said and "Markdown: t.md" in said and "LaTeX: t.tex" in said
    page, markdown, latex = ((tmp_path / name).read_text() for name in ("page.html", "t.md", "t.tex"))
    assert "Runs in runs" in page and "significantly better than none" in page
    # mean of 0.75 to 0.80 is 0.775; deviation of 0 to 5 hundredths 0.0187; 1 / 2^6 is significant after Holm
    assert "| mlp | 50.00 ± 0.00 | **77.50 ± 1.87** ∘ |" in markdown
    assert r"cnn & $50.00 \pm 0.00$ & $\mathbf{77.50} \pm 1.87^{\circ}$ \\" in latex and r"soft\_rescale" in latex


def test_another_measure_and_baseline(runs, capsys, tmp_path):
    pytest.importorskip("vl_convert")
    words = ["report", "runs", "--measure", "loss", "--baseline", "soft_rescale", "--markdown", "t.md"]
    assert main(words) == 0
    assert "page: report.html" in capsys.readouterr().out
    assert "1.0000 ± 0.0000" in (tmp_path / "t.md").read_text()
    assert "minus soft_rescale" in (tmp_path / "report.html").read_text()


def test_mistakes_are_three_lines(runs, capsys, tmp_path):
    pytest.importorskip("vl_convert")
    for words, told in [
        (["nowhere"], "got: nowhere, which does not exist"),
        (["runs", "--measure", "speed"], "got: measure 'speed'"),
        (["runs", "--baseline", "fire"], "got: 'fire'"),
        (["runs", "-o", "not/there.html"], "what to do: make the folder not"),
        (["runs", "--markdown", "not/there.md"], "what to do: make the folder not"),
    ]:
        assert main(["report", *words]) == 2
        said = capsys.readouterr().err
        assert told in said and said.startswith("expected: ") and "what to do: " in said
