import torch
import torch.nn as nn


class Model(nn.Module):
    """Classifies sequences by the last hidden state of an LSTM."""

    def __init__(self, features, hidden, classes):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[-1])


def get_inputs():
    return [torch.randn(512, 8, 10)]


def get_init_inputs():
    return [10, 64, 16]
