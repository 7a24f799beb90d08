import torch
import torch.nn as nn


class Model(nn.Module):
    """Two losses of the same pair: each one number."""

    def forward(self, predicted, wanted):
        difference = predicted - wanted
        return {"mse": difference.square().mean(), "l1": difference.abs().mean()}


def get_inputs():
    return [torch.randn(64, 700), torch.randn(64, 700)]


def get_init_inputs():
    return []
