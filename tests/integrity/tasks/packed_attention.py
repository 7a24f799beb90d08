from itertools import pairwise

import torch
import torch.nn as nn


class Model(nn.Module):
    """Attention over packed sequences, as flash_attn_varlen."""

    def forward(self, q, k, v, cu_seqlens, max_seqlen):
        out = torch.zeros_like(q)
        bounds = cu_seqlens.tolist()
        for a, b in pairwise(bounds):
            if b > a:
                s = torch.einsum("qhd,khd->hqk", q[a:b], k[a:b]) * q.shape[-1] ** -0.5
                out[a:b] = torch.einsum("hqk,khd->qhd", s.softmax(-1), v[a:b])
        return out


def get_inputs():
    n, h, d = 256, 4, 32
    cu = torch.tensor([0, 30, 60, 90, 100, 130, 164, 200, 256], dtype=torch.int32)
    return [torch.randn(n, h, d), torch.randn(n, h, d), torch.randn(n, h, d), cu, 64]


def get_init_inputs():
    return []
