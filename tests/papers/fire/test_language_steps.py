import pytest
import torch

from papers.catalog import experiment
from papers.fire.language_steps import COUNTS, MEDIAN, SHAPES, TENTH, WIDTHS, after_steps, how_far, spectrum
from papers.pipeline import judge
from rekindle.methods import CUBIC, newton_schulz

pytest.importorskip("scipy")


@pytest.mark.parametrize("steps", COUNTS)
def test_singular_values_move_as_those_of_a_matrix_under_the_published_iteration(steps):
    matrix = torch.randn(48, 48, generator=torch.Generator().manual_seed(1))
    moved = torch.linalg.svdvals(newton_schulz(matrix, steps, CUBIC))
    expected = after_steps(torch.linalg.svdvals(matrix), steps).sort(descending=True).values
    assert torch.allclose(moved, expected, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_spectra_are_of_the_width_and_not_negative(shape):
    values = spectrum(shape, 96, seed=0)
    assert values.shape == (96,) and bool((values >= 0).all())
    assert float(values.max() / values.median()) > 1.5


def test_wider_matrices_stay_further_from_an_isometry_and_the_claims_hold():
    found = how_far(seeds=2)
    assert len(found) == len(WIDTHS) * len(SHAPES) * len(COUNTS) * 2
    for method in {one["method"] for one in found}:
        mine = [one for one in found if one["method"] == method and one["seed"] == 0]
        medians = [one[MEDIAN] for one in mine]
        assert medians == sorted(medians, reverse=True) and all(0 < one[TENTH] <= one[MEDIAN] <= 1 for one in mine)
    rows = judge(experiment("fire-language-steps"), found)
    assert [row["verdict"] for row in rows] == ["holds"] * 4


def test_a_claim_fails_where_five_steps_went_all_the_way():
    found = [{**one, MEDIAN: 1.0 - one["seed"] / 1000} for one in how_far(seeds=2)]
    rows = judge(experiment("fire-language-steps"), found)
    assert [row["verdict"] for row in rows] == ["does not hold", "does not hold", "not decided", "does not hold"]
