"""The Keeper in the Trainer of transformers, in one line.

Trainer(..., callbacks=[KeeperCallback("fire", at=[1000])])
Trainer(..., callbacks=[KeeperCallback("soft_rescale:strength=1e-4")])
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from rekindle.edits.copies import Copies
from rekindle.edits.optimizer_state import OptimizerState
from rekindle.edits.record import ChangeRecord
from rekindle.errors import KeeperError, KeeperWarning
from rekindle.graph.adapters import adapters_in
from rekindle.integrations.calling_trainer import calling_trainer
from rekindle.integrations.hosted import HostData, HostedKeeper, looks_at_data
from rekindle.integrations.samples import Samples, can_be_looked_at, example_of, refuse_streams, refuse_unseen_data
from rekindle.integrations.state_file import read_state, write_state
from rekindle.keeper import Keeper
from rekindle.keeper.events import RecyclingRecord
from rekindle.methods.kinds import scan_is_enough

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise KeeperError(
        expected="transformers and accelerate, for rekindle.integrations.transformers",
        got=f"{error}",
        fix="pip install 'rekindle[transformers]'",
    ) from error


class KeeperCallback(TrainerCallback):
    """Runs methods inside `transformers.Trainer`.

    Per-step methods and recyclers act at every step of the optimizer: once for several accumulated batches, and not for
    a step that was skipped because gradients overflowed. One-shot methods act after the steps in `at`, after every
    `every` steps, or else when `train` is called again with another `train_dataset`. Steps are those that the optimizer
    really made, over all calls of `train` with one model. A penalty enters the gradient at its full strength before it
    is clipped, as `loss + keeper.penalty()` does in a loop of one's own; the loss that is logged is without it.

    Checkpoints have a file `rekindle.pt`, and resuming asks for it. Readings are in the Trainer's log, as
    `rekindle/fire/sfe`.

    Attributes:
        records: What was done, the last 1,000 times.

    Example:
        >>> KeeperCallback("fire+soft_rescale:strength=1e-4", at=[1000]).records
        []
    """

    def __init__(
        self,
        methods: Any,
        *,
        example: Any = None,
        at: int | Literal["start"] | Iterable[int] | None = None,
        every: int | None = None,
        rebase: bool = False,
        copies: Copies | None = None,
        frozen: bool = False,
        optimizer_state: OptimizerState | None = None,
        seed: int = 0,
    ) -> None:
        """Check what is asked for; the model is met when training begins.

        Args:
            methods: Spec strings or settings, one or several.
            example: Input of the model, from which its structure is traced; the first two samples of the training
                set by default. A stream needs one.
            at: Steps after which one-shot methods act; 0 or "start" is before the first.
            every: One-shot methods act after every so many steps.
            rebase: Methods that pull to the weights at the start take those of the moment when the learning rate drops:
                when it falls within one step to half or less, as in a step schedule. `soft_rescale` does so by itself.
            copies: Networks inside the model that follow others; see `rekindle.apply_`.
            frozen: Treat parameters with `requires_grad=False` too.
            optimizer_state: "keep" or "drop" for optimizers whose state is not known; see `rekindle.apply_`.
            seed: Seed of every draw.

        Raises:
            RekindleError: A method, or a number of steps, is not known.
        """
        options: dict[str, Any] = {"rebase": rebase, "copies": copies, "frozen": frozen, "seed": seed}
        options["optimizer_state"] = optimizer_state
        self._hosted = HostedKeeper(methods, at=at, every=every, **options)
        self._example, self._frozen = example, frozen
        self._trainer: Any = None
        self._data: Any = None  # what the model was trained on last

    @property
    def records(self) -> list[ChangeRecord | RecyclingRecord]:
        """What was done, the last 1,000 times; each prints itself."""
        return list(self._hosted.records)

    @property
    def keeper(self) -> Keeper | None:
        """The Keeper, while a training goes on."""
        return self._hosted.keeper

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin on the model, go on with it, or resume; treat it if that is due before the first step."""
        if not self._hosted.methods:
            return
        self._trainer, checkpoint = calling_trainer(Trainer)
        refuse_setting(self._trainer, self)
        model, loader = kwargs["model"], kwargs["train_dataloader"]
        refuse_unseen_data(loader, [one for one in self._hosted.one_shot if looks_at_data(one)])
        self._warn_of_a_base_that_is_not_saved(model)
        saved = None if checkpoint is None else self._saved(Path(checkpoint), model, state.global_step)
        again = self._hosted.knows(model) and saved is None
        self._hosted.begin(model, kwargs["optimizer"], self._example_from(loader, args.device), saved)
        seen, self._data = self._data, self._trainer.train_dataset
        if saved is None:
            new = again and seen is not self._data
            acted = self._hosted.treat_at_start(self._shown) or (new and self._hosted.treat_for_new_data(self._shown))
            self._log(control, now=acted)
        self._hosted.expect(state.max_steps - state.global_step)

    def _warn_of_a_base_that_is_not_saved(self, model: Any) -> None:
        if self._frozen and adapters_in(model):
            told = (
                "frozen=True treats the base under the adapters, and the Trainer saves the adapters alone: they do not "
                "fit the base as it was; save the base too, or merge before you save (merge_and_unload)"
            )
            warnings.warn(told, KeeperWarning, stacklevel=2)

    def _saved(self, checkpoint: Path, model: Any, step: int) -> dict[str, Any]:
        """Return the state of a checkpoint that is resumed.

        Raises:
            KeeperError: It has none, or cannot hold what was treated.
        """
        if self._frozen and adapters_in(model):
            raise KeeperError(
                expected="a checkpoint that holds all that was treated",
                got="frozen=True with adapters (PEFT): the base was treated, and the checkpoint has the adapters alone",
                fix="treat the base once before the training, save it, and train adapters on what was saved",
            )
        return read_state(checkpoint, step)

    def _example_from(self, loader: Any, device: Any) -> Any:
        if self._example is not None:
            return self._example
        if not can_be_looked_at(loader) and all(map(scan_is_enough, self._hosted.methods)):
            return None
        refuse_streams(loader, self._hosted.methods)
        return example_of(loader, device)

    def _shown(self) -> HostData:
        trainer = self._trainer
        loader = trainer.callback_handler.train_dataloader
        if not can_be_looked_at(loader):
            return HostData(None, None)
        batches = Samples(loader, trainer.args.per_device_train_batch_size)
        return HostData(batches, lambda model, batch: trainer.compute_loss(model, dict(batch)))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the penalty's gradient before the first of the accumulated batches: clipping comes after the last."""
        scaler = getattr(kwargs["optimizer"], "scaler", None)
        self._hosted.before_step(scale=1.0 if scaler is None else scaler.get_scale())

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Act after the optimizer's step, while gradients are still there."""
        self._hosted.after_step(skipped=bool(getattr(kwargs["optimizer"], "step_was_skipped", False)))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Treat the model if it is time, before the Trainer logs, evaluates and saves."""
        self._log(control, now=self._hosted.treat_if_due(self._shown))

    def _log(self, control: Any, *, now: bool) -> None:
        """Log what was done: a treatment at once, what recyclers did together with the Trainer's own log."""
        if (now or control.should_log) and (readings := self._hosted.readings.take()):
            due = control.should_log
            self._trainer.log(readings)
            control.should_log = due  # a log of ours does not take the place of the Trainer's own

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save the state beside the model, where the Trainer saves what it needs to resume."""
        if self._hosted.keeper is None or args.save_only_model or not args.should_save:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if folder.is_dir():
            write_state(folder, {**self._hosted.state_dict(), "host_step": state.global_step})
        else:
            told = f"there is no {folder}: the state of rekindle was not saved, and this checkpoint cannot be resumed"
            warnings.warn(told, KeeperWarning, stacklevel=2)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model; another `train` goes on where this one ends."""
        if self._hosted.keeper is not None:
            self._log(control, now=True)
        self.close()

    def close(self) -> None:
        """Leave the model: after an exception in `train`, of which a Trainer tells its callbacks nothing.

        Until then, or until the next `train`, hooks of recyclers stay in the model.
        """
        self._hosted.end()
        self._trainer = None


def refuse_setting(trainer: Any, callback: KeeperCallback) -> None:
    """Refuse what this callback cannot work with in a Trainer.

    Raises:
        KeeperError: The optimizer keeps weights of its own, the model runs as copies, or another callback is there.
    """
    others = [one for one in trainer.callback_handler.callbacks if isinstance(one, KeeperCallback)]
    if len(others) > 1:
        raise KeeperError(
            expected="one KeeperCallback for a Trainer",
            got=f"{len(others)}",
            fix='join the methods: KeeperCallback(["fire", "soft_rescale"], at=[1000])',
        )
    if getattr(trainer, "is_deepspeed_enabled", False):
        raise KeeperError(
            expected="a Trainer whose optimizer works on the model's own parameters",
            got="DeepSpeed, which keeps weights of its own and writes them over the model's",
            fix="train with DistributedDataParallel (torchrun), or treat the model between trainings with rk.apply_",
        )
    watching = [one for one in callback._hosted.methods if getattr(one, "observes", ())]
    if trainer.args.n_gpu > 1 and watching:
        raise KeeperError(
            expected="one process for each device, for methods that look at activations",
            got=f"{watching[0].key} with DataParallel, which runs copies of the model on {trainer.args.n_gpu} devices",
            fix="start the script with torchrun, or let it see one device (CUDA_VISIBLE_DEVICES)",
        )
