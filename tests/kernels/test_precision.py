import pytest
import torch

from rekindle.kernels.precision import wide_dtype, widened


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_half_precision_is_widened_without_loss(dtype):
    values = torch.randn(50).to(dtype)
    wide = widened(values)
    assert wide.dtype == wide_dtype(dtype) == torch.float32
    assert torch.equal(wide.to(dtype).float(), values.float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64])
def test_others_are_the_tensor_itself(dtype):
    values = torch.ones(3, dtype=dtype)
    assert widened(values) is values and wide_dtype(dtype) == dtype
