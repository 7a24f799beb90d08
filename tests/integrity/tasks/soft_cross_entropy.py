import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Cross entropy with a distribution per row as target, each row's loss."""

    def forward(self, logits, target):
        return -(target * F.log_softmax(logits, dim=-1)).sum(-1)


def get_inputs():
    return [torch.randn(256, 200), F.one_hot(torch.randint(0, 200, (256,)), 200).float()]


def get_init_inputs():
    return []
