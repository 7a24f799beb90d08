import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Entropic optimal transport between two sets of features by 50 Sinkhorn iterations."""

    def __init__(self, steps, epsilon):
        super().__init__()
        self.steps, self.epsilon = steps, epsilon

    def forward(self, x, y):
        x, y = F.normalize(x, dim=-1), F.normalize(y, dim=-1)
        kernel = torch.exp((x @ y.mT - 1) / self.epsilon)
        n = x.shape[1]
        a = torch.ones(x.shape[0], n, 1, device=x.device)
        b = torch.ones(x.shape[0], n, 1, device=x.device)
        for _ in range(self.steps):
            a = 1.0 / n / (kernel @ b)
            b = 1.0 / n / (kernel.mT @ a)
        return a * kernel * b.mT


def get_inputs():
    return [torch.randn(8, 64, 32), torch.randn(8, 64, 32)]


def get_init_inputs():
    return [50, 0.5]
