//! A task with one weight, in any size, and the model of a candidate for it.

use super::body;

/// `relu(x + bias)` over rows of `columns` elements.
pub(crate) fn task(rows: usize, columns: usize) -> String {
    format!(
        r"
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return torch.relu(x + self.bias)

def get_inputs():
    return [torch.randn({rows}, {columns})]

def get_init_inputs():
    return [{columns}]
"
    )
}

/// A `ModelNew` around the body of `forward`.
pub(crate) fn model(forward: &str) -> String {
    format!(
        "import torch\nimport torch.nn as nn\nimport cuda_extension\n\n\
         class ModelNew(nn.Module):\n\
         \x20   def __init__(self, size):\n\
         \x20       super().__init__()\n\
         \x20       self.bias = nn.Parameter(torch.randn(size))\n\n\
         \x20   def forward(self, x):\n{}\n",
        body(forward)
    )
}
