"""Says at the end of an epoch which images turned bad in it."""

from __future__ import annotations

from mindspore.train import Callback

from msrun_cli.data.bad_samples import BadSamples


class BadImageSummary(Callback):
    """One line after each epoch in which there were any; most turn up in the first, which reads all images."""

    def __init__(self, bad: BadSamples) -> None:
        super().__init__()
        self.bad = bad

    def on_train_epoch_end(self, run_context) -> None:
        self.bad.say()
