//! Facts read from valid sources.

use insta::assert_snapshot;
use warpwright_task::{DeviceUse, Facts, InitInputs, Mode, Presence, facts};

use crate::GOOD;

fn read(source: &str) -> Facts {
    facts(source).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

/// A task whose `__init__` and `forward` have these bodies.
fn with(init: &str, forward: &str) -> String {
    format!(
        "import random\nimport numpy as np\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\
         class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n\
         \x20   def forward(self, x):\n        {forward}\n        return x\n\
         def get_inputs():\n    return [torch.rand(4)]\n"
    )
}

/// Warnings in both modes: random operators of both modes, and further ones of train mode.
fn random(init: &str, forward: &str) -> String {
    let facts = read(&with(init, forward));
    let show = |mode| {
        let warnings = facts.warnings(mode);
        let messages: Vec<_> = warnings.into_iter().map(|w| w.message).collect();
        messages.join("; ").replace(" samples random numbers in forward", "")
    };
    format!("eval: {} | train: {}", show(Mode::Eval), show(Mode::Train))
}

#[test]
fn get_init_inputs_is_optional_without_required_arguments() {
    assert_eq!(read(GOOD).init_inputs, InitInputs::Declared);
    assert_eq!(read(&with("pass", "pass")).init_inputs, InitInputs::Absent);
    let defaults = GOOD
        .replace("self, width", "self, width=8, *rest, **more")
        .replace("def get_init_inputs", "def unused");
    assert_eq!(read(&defaults).init_inputs, InitInputs::Absent);
}

#[test]
fn unanalysable_model_definition_is_accepted() {
    let rest = "\ndef get_inputs():\n    return []\n";
    for model in [
        "from models import Model",
        "Model = make()",
        "from torch.nn import Linear\nclass Model(Linear): pass",
        "import models\nclass Model(models.Base): pass",
        "class Model(Generic[T]): pass",
        "class Base:\n    def forward(self, x): return x\nclass Model(Base): pass",
        "class Model:\n    forward = other",
        "class Model:\n    if fast:\n        def forward(self, x): return x",
        "try:\n    class Model:\n        def forward(self, x): return x\nexcept ImportError: pass",
        "class Model:\n    def __call__(self, x): return x",
        "class Model(nn.Sequential):\n    def __init__(self): pass",
    ] {
        read(&format!("{model}{rest}"));
    }
    // Classes that are each other's base must not be followed for ever.
    let cycle = "class Base(Model): pass\nclass Model(Base): pass";
    assert!(facts(&format!("{cycle}{rest}")).is_err());
    read("get_inputs = lambda: []\nclass Model:\n    def forward(self): return 1\n");
}

#[test]
fn imports_determine_the_required_packages() {
    let source = format!(
        "from __future__ import annotations\nimport math, os.path\nimport einops\nfrom PIL import Image\n\
         with x:\n    import yaml\n\
         try:\n    import triton\nexcept ImportError:\n    triton = None\n\
         def late():\n    import scipy\n{GOOD}"
    );
    let facts = read(&source);
    assert_eq!(facts.required_packages(), ["PIL", "einops", "torch", "yaml"]);
    let shown: Vec<String> = facts
        .imports
        .iter()
        .map(|i| {
            let optional = if i.presence == Presence::Optional { "?" } else { "" };
            format!(
                "{}{optional} {} ({})",
                i.package,
                i.distribution.as_deref().unwrap_or("-"),
                i.position
            )
        })
        .collect();
    assert_snapshot!(shown.join("\n"), @"
    __future__ - (line 1, column 1)
    math - (line 2, column 1)
    os - (line 2, column 1)
    einops einops (line 3, column 1)
    PIL Pillow (line 4, column 1)
    yaml PyYAML (line 6, column 5)
    triton? triton (line 8, column 5)
    torch torch (line 13, column 1)
    torch torch (line 14, column 1)
    ");
}

#[test]
fn device_uses_are_found() {
    let facts = read(&with(
        "self.stream = torch.cuda.Stream() if torch.cuda.is_available() else None",
        "x = x.cuda().to('cuda').to(device=torch.device(\"cuda:0\")) + len('cuda device')",
    ));
    assert!(
        matches!(
            &facts.device_uses[..],
            [DeviceUse::Runtime(_, call), DeviceUse::Method(_), DeviceUse::Name(_), DeviceUse::Name(_)]
                if call == "torch.cuda.Stream"
        ),
        "{:?}",
        facts.device_uses
    );
    let warning = &facts.warnings(Mode::Eval)[0];
    assert_snapshot!(warning.message, @"`torch.cuda.Stream` needs a GPU");
    assert_eq!((warning.position.line, warning.position.column), (9, 23));
}

#[test]
fn random_operators_in_forward_are_found() {
    let always = [
        ("pass", "x = x + torch.rand(4)"),
        ("pass", "x = x + torch.randn_like(x)"),
        ("pass", "x = F.dropout(x, 0.5)"),
        ("pass", "x = F.dropout2d(x, training=True)"),
        ("pass", "x = x.bernoulli_(0.5)"),
        ("pass", "x = x * np.random.rand() * random.random()"),
        ("pass", "x = F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)"),
        ("self.pool = nn.FractionalMaxPool2d(2, output_size=3)", "x = self.pool(x)"),
    ];
    let shown: Vec<String> = always.iter().map(|(init, forward)| random(init, forward)).collect();
    assert_snapshot!(shown.join("\n"), @"
    eval: `torch.rand` | train: `torch.rand`
    eval: `torch.randn_like` | train: `torch.randn_like`
    eval: `torch.nn.functional.dropout` | train: `torch.nn.functional.dropout`
    eval: `torch.nn.functional.dropout2d` | train: `torch.nn.functional.dropout2d`
    eval: `Tensor.bernoulli_` | train: `Tensor.bernoulli_`
    eval: `numpy.random.rand`; `random.random` | train: `numpy.random.rand`; `random.random`
    eval: `torch.nn.functional.scaled_dot_product_attention` | train: `torch.nn.functional.scaled_dot_product_attention`
    eval: `torch.nn.FractionalMaxPool2d` | train: `torch.nn.FractionalMaxPool2d`
    ");
}

#[test]
fn dropout_is_random_only_in_train_mode() {
    let train = [
        ("self.drop = nn.Dropout(0.1)", "x = self.drop(x)"),
        ("self.seq = nn.Sequential(nn.Linear(4, 4), nn.Dropout2d(p=0.1))", "x = self.seq(x)"),
        ("self.rnn = nn.LSTM(4, 4, num_layers=2, dropout=0.1)", "x = self.rnn(x)"),
        ("self.layer = nn.TransformerEncoderLayer(4, 1)", "x = self.layer(x)"),
        ("pass", "x = F.dropout(x, 0.1, self.training)"),
        ("pass", "x = F.dropout(x, p=0.1, training=self.training)"),
        (
            "pass",
            "x = F.scaled_dot_product_attention(x, x, x, dropout_p=self.p if self.training else 0)",
        ),
    ];
    let shown: Vec<String> = train.iter().map(|(init, forward)| random(init, forward)).collect();
    assert_snapshot!(shown.join("\n"), @"
    eval:  | train: `torch.nn.Dropout`
    eval:  | train: `torch.nn.Dropout2d`
    eval:  | train: `torch.nn.LSTM`
    eval:  | train: `torch.nn.TransformerEncoderLayer`
    eval:  | train: `torch.nn.functional.dropout`
    eval:  | train: `torch.nn.functional.dropout`
    eval:  | train: `torch.nn.functional.scaled_dot_product_attention`
    ");
}

#[test]
fn initialisation_and_disabled_dropout_give_no_warning() {
    for (init, forward) in [
        (
            "self.w = nn.Parameter(torch.randn(4)); nn.init.normal_(self.w); self.w.data.uniform_()",
            "x = x * self.w",
        ),
        ("self.drop = nn.Dropout(0.0)", "x = self.drop(x)"),
        ("self.rnn = nn.GRU(4, 4)", "x = self.rnn(x)"),
        ("self.layer = nn.TransformerEncoderLayer(4, 1, dropout=0)", "x = self.layer(x)"),
        ("pass", "x = F.dropout(x, 0.5, training=False)"),
        ("pass", "x = F.dropout(x, p=0)"),
        ("pass", "x = F.scaled_dot_product_attention(x, x, x)"),
        ("pass", "x = self.random + rand(x) + x.normal"),
    ] {
        assert_eq!(random(init, forward), "eval:  | train: ", "{init} / {forward}");
    }
}

#[test]
fn randomness_is_found_through_helpers_and_submodules() {
    let source = "\
import torch
from torch import nn
from torch.nn.functional import dropout as drop

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self._reset(self)

    def _reset(self, m):
        nn.init.normal_(m.weight)

    def forward(self, x):
        return self.noisy(x)

    def noisy(self, x):
        return jitter(x)

class Unused(nn.Module):
    def forward(self, x):
        return torch.rand(1)

def jitter(x):
    return drop(x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x)

def get_inputs():
    return [torch.randn(3)]
";
    let warnings = read(source).warnings(Mode::Eval);
    let shown: Vec<String> =
        warnings.iter().map(|w| format!("{}: {}", w.position, w.message)).collect();
    assert_snapshot!(shown.join("\n"), @"line 24, column 12: `torch.nn.functional.dropout` samples random numbers in forward");
}
