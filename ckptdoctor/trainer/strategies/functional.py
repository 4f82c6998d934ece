"""``functional``: the parts of a network, each data-parallel by itself through a function call."""

from __future__ import annotations

import torch

from ckptdoctor.trainer import devices
from ckptdoctor.trainer.strategies.module_strategy import ModuleStrategy
from ckptdoctor.trainer.strategies.replicas import data_parallel, watching


class Functional(ModuleStrategy):
    """Features and classifier are scattered and gathered apart. No wrapper is left behind: the keys are bare."""

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """One for each replica; the CPU as often as there are replicas."""
        return devices.replicas(self.config.device, self.config.world_size)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Logits of the whole batch: through all replicas of the features, then through those of the classifier."""
        features, classifier = self.model.get_submodule("features"), self.model.get_submodule("classifier")
        with watching(features) as replica_batches:
            hidden = data_parallel(features, inputs, self.devices)
        return data_parallel(classifier, hidden.flatten(1), self.devices), replica_batches()
