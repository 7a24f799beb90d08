//! Reading tasks as a caller sees it.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests, outside #[test]")]

mod arbitrary;
mod definitions;
mod examples;
mod facts;
mod graphs;
mod messages;
mod near_duplicates;
mod nesting;
mod similarity;
mod starter;
mod suites;
mod tables;

/// A valid task source, which the tests modify.
const GOOD: &str = "\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x + self.bias


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return [8]
";
