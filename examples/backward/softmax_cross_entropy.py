"""Softmax cross entropy with its gradient: the loss of a language model over its vocabulary."""

import torch
from torch import nn

TOKENS = 2048
VOCABULARY = 8192

backward = True


class Model(nn.Module):
    """The mean over tokens of `logsumexp(logits) - logits[target]`. Targets have no gradient."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, targets)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, VOCABULARY), torch.randint(VOCABULARY, (TOKENS,))]
