"""Nothing of torch reaches the screen, and everything is put back."""

import logging
import sys
import warnings

import pytest
import torch
from torch import nn

from rekindle.graph.quiet import printing, quiet, torch_loggers


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def fails():
    with pytest.raises(RuntimeError):
        torch.export.export(Branches(), (torch.ones(2),), strict=False)


def test_without_it_torch_prints_code(capfd):
    fails()
    assert "def forward" in capfd.readouterr().err


def test_with_it_nothing_is_printed_but_what_others_print_is(capfd):
    with quiet():
        fails()
        warnings.warn("not seen", stacklevel=1)
        print("the model's own words", file=sys.stderr)
    assert capfd.readouterr() == ("", "the model's own words\n")


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_all_is_put_back_after_an_error(error):
    logging.getLogger("torch.export").disabled = True
    try:
        before = [(each.name, each.disabled, each.level) for each in torch_loggers()], list(warnings.filters)
        with pytest.raises(error), quiet():
            assert all(each.disabled for each in torch_loggers()) and "print" in printing()
            raise error
        assert ([(each.name, each.disabled, each.level) for each in torch_loggers()], list(warnings.filters)) == before
        assert "print" not in printing() and logging.getLogger("torch.export").disabled
    finally:
        logging.getLogger("torch.export").disabled = False
