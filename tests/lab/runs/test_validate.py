"""Every name in a run is checked before anything is trained."""

import dataclasses

import pytest

from rekindle.errors import RekindleError, SettingsError
from rekindle.lab.runs import validate
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.validate import check, methods_of
from rekindle.methods.one_shot.fire import Fire

FIELDS = Run().to_dict()


def test_a_plain_run_passes_and_nothing_is_loaded(monkeypatch):
    check(FIELDS)
    check({**FIELDS, "data": "a_folder_that_is_not_there", "optimizer": "muon:lr=0.1", "metrics": ["dfi"]})
    monkeypatch.setattr(validate, "NETWORKS", {})
    with pytest.raises(SettingsError):
        check(FIELDS)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("protocol", "warm_stop", "warm_start"),
        ("protocol", "warm_start:portion=0.2", "fraction"),
        ("data", "a folder/with signs", "plain name of a folder"),
        ("data", "digits2:noise=1", "with size"),
        ("model", "mpl", "mlp"),
        ("methods", "fyre", "fire"),
        ("methods", "fire:blend=2", "blend"),
        ("methods", "muon", "beside an optimizer"),
        ("augment", "flipp", "flip"),
        ("optimizer", "adma", "adam"),
        ("optimizer", "adam:rate=1", "lr"),
        ("metrics", ["dif"], "dfi"),
        ("device", "cpuu", "a device"),
        ("schedule", "plateau", "validation above 0"),
        ("patience", 3, "validation above 0"),
    ],
)
def test_a_wrong_name_is_told_with_the_right_ones(field, value, told):
    assert field in {each.name for each in dataclasses.fields(Run)}
    with pytest.raises(RekindleError) as caught:
        check({**FIELDS, field: value})
    assert told in str(caught.value) and caught.value.fix


def test_with_validation_data_patience_and_plateau_may_look_at_it():
    fields = {**FIELDS, "patience": 3, "schedule": "plateau", "validation": 0.1}
    check(fields)
    with pytest.raises(SettingsError, match="hold out a tenth"):
        check({**fields, "validation": 0.0})


def test_methods_of_a_run():
    assert methods_of("none") == () == methods_of("fresh")
    assert methods_of("fire") == (Fire(),) and len(methods_of("fire+l2")) == 2
