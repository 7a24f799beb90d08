"""Products of all pairs of a sample's embeddings, beside its dense features.

The interaction layer of a recommender such as DLRM. The products are small square matrices of
which half is kept: eager writes them whole, gathers a half, and joins that with the rest.
"""

import torch
from torch import nn

BATCH = 16384
FIELDS = 26
FEATURES = 64


class Model(nn.Module):
    """`[dense, z_i . z_j for i > j]` with `z` the dense vector and the fields' embeddings."""

    def __init__(self, fields: int) -> None:
        super().__init__()
        first, second = torch.tril_indices(fields + 1, fields + 1, offset=-1)
        self.register_buffer("first", first.contiguous())
        self.register_buffer("second", second.contiguous())

    def forward(self, dense: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        z = torch.cat([dense.unsqueeze(1), embedded], dim=1)
        products = torch.bmm(z, z.transpose(1, 2))
        return torch.cat([dense, products[:, self.first, self.second]], dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, FEATURES), torch.randn(BATCH, FIELDS, FEATURES)]


def get_init_inputs() -> list[int]:
    return [FIELDS]
