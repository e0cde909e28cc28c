from rekindle.training.progress import Length, StageProgress, TrainConfig, length_of
from tests.training.test_loop import fit, linear, stage


def test_steps_end_within_an_epoch():
    length = length_of(stage(epochs=None, steps=10), TrainConfig(batch_size=16))  # 4 steps an epoch
    assert (length.total, length.last, [length.in_epoch(e) for e in range(3)]) == (10, 3, [4, 4, 2])
    rows = fit(linear(), stage(epochs=None, steps=10), TrainConfig(batch_size=16))
    assert [row["step"] for row in rows] == [4, 8, 10]


def test_an_epoch_of_a_stream_is_as_long_as_it_is_told():
    length = Length(count=100, batch_size=512, epochs=None, steps=70, epoch_steps=30)
    assert (length.size, length.each, length.last, length.in_epoch(2)) == (512, 30, 3, 10)


def test_a_batch_is_divided_into_parts():
    assert TrainConfig(batch_size=480, accumulate=40).part_size == 12


def test_progress_comes_back_from_its_state():
    progress = StageProgress(epoch=3, step=2, loss=1.5, best=0.25, plateaus=1)
    assert StageProgress.from_state(progress.state_dict()) == progress
