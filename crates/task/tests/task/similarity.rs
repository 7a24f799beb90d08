//! Similarity of sources: which differences are ignored, and which are not.

use proptest::prelude::*;
use warpwright_task::TaskErrorKind;
use warpwright_task::similarity::AstProfile;

fn profile(source: &str) -> AstProfile {
    AstProfile::of(source).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn alike(a: &str, b: &str) -> f64 {
    profile(a).similarity(&profile(b))
}

/// Within rounding.
fn is_one(similarity: f64) -> bool {
    similarity > 1.0 - 1e-12
}

/// A `Model` with the given statements in `forward`, and `nn`, `F` imported.
fn forward(body: &str) -> String {
    let body = body.replace('\n', "\n        ");
    format!(
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\
         class Model(nn.Module):\n    def forward(self, x, y):\n        {body}\n\
         def get_inputs():\n    return []\n"
    )
}

const PLAIN: &str = r#"
import torch
import torch.nn as nn

class Model(nn.Module):
    """Convolves, then adds."""
    def __init__(self, in_channels, out_channels, kernel_size, bias_shape):
        super(Model, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        x = torch.relu(x)
        x = x + self.bias
        return x
"#;

/// The same task, disguised.
const DISGUISED: &str = r"
from torch import nn
import torch as t
from torch.nn import functional as fn

WIDTH = 32

class Model(nn.Module):
    def forward(this, picture):
        # One line less.
        return this.offset + fn.relu(this.filter(picture))

    def __init__(this, channels: int = 3, features: int = 16):
        super().__init__()
        this.channels = channels
        this.filter = nn.Conv2d(channels, features * 2, (5, 5))
        this.offset = nn.Parameter(t.randn(WIDTH, 1, 1))
";

#[test]
fn names_constants_and_spelling_are_ignored() {
    // `torch.randn(32, 1, 1)` has three constants where the other has one: all else is the same.
    let one_size = DISGUISED.replace("(WIDTH, 1, 1)", "(WIDTH)");
    assert!(is_one(alike(PLAIN, &one_size)), "{}", alike(PLAIN, &one_size));
    let similarity = alike(PLAIN, DISGUISED);
    assert!(similarity > 0.85 && similarity < 1.0, "{similarity}");
}

#[test]
fn spellings_of_an_operator_are_equal() {
    for (a, b) in [
        ("return F.relu(x)", "return x.relu()"),
        ("return torch.relu(x)", "x.relu_()\nreturn x"),
        ("return x + y", "return torch.add(y, x)"),
        ("x += y\nreturn x", "return y + x"),
        ("return torch.tanh(torch.relu(x))", "x = torch.relu(x)\nx = torch.tanh(x)\nreturn x"),
        ("return F.softmax(x, dim=1)", "return F.softmax(y, dim=-1)"),
        ("return x @ y", "return torch.matmul(x, y)"),
    ] {
        assert!(is_one(alike(&forward(a), &forward(b))), "{a} and {b}");
    }
}

#[test]
fn different_operators_lower_similarity() {
    for (a, b, most) in [
        ("return torch.relu(x)", "return torch.sigmoid(x)", 0.3),
        ("return torch.relu(torch.tanh(x))", "return torch.tanh(torch.relu(x))", 0.8),
        ("return x + y", "return x + 1", 0.9),
        ("return x - y", "return x + y", 0.3),
        ("return torch.softmax(x, dim=1)", "return torch.softmax(x + y, dim=1)", 0.9),
    ] {
        let similarity = alike(&forward(a), &forward(b));
        assert!(similarity < most, "{a} and {b}: {similarity}");
    }
}

/// A model that only wraps a block equals the block; unused code is ignored.
#[test]
fn unused_code_is_ignored() {
    let with_block = |operator: &str, unused: &str| {
        format!(
            "import torch\nfrom torch import nn\n\
             class Block(nn.Module):\n    def forward(self, x):\n        return torch.{operator}(x)\n\
             def helper(x):\n    return {unused}\n\
             class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n\
             \x20       self.block = Block()\n\
             \x20   def forward(self, x):\n        return self.block(x)\n"
        )
    };
    let relu = with_block("relu", "x");
    assert!(is_one(alike(&relu, &with_block("relu", "torch.fft.fft(x).abs()"))));
    assert!(alike(&relu, &with_block("cumsum", "x")) < 0.8);
}

#[test]
fn order_of_modules_in_forward_matters() {
    let ordered = |first: &str, second: &str| {
        format!(
            "from torch import nn\nclass Model(nn.Module):\n    def __init__(self, n):\n\
             \x20       super().__init__()\n        self.a = nn.Linear(n, n)\n\
             \x20       self.b = nn.LayerNorm(n)\n\
             \x20   def forward(self, x):\n        return self.{first}(self.{second}(x))\n"
        )
    };
    assert!(alike(&ordered("a", "b"), &ordered("b", "a")) < 0.9);
}

#[test]
fn invalid_task_is_refused_as_in_other_functions() {
    let kind = |source: &str| *AstProfile::of(source).unwrap_err().kind;
    assert!(matches!(kind("class Model(:"), TaskErrorKind::Syntax { .. }));
    assert!(matches!(kind("class Net: pass"), TaskErrorKind::NoModel { .. }));
    let large = " ".repeat(warpwright_task::MAX_SOURCE_BYTES + 1);
    assert!(matches!(kind(&large), TaskErrorKind::TooLarge { .. }));
    // Made by assignment: every definition of the module counts.
    let assigned = "import torch\nclass Net:\n    def forward(self, x):\n        return torch.relu(x)\nModel = Net\n";
    assert!(!profile(assigned).bag().is_empty());
}

#[test]
fn source_nested_to_the_size_limit_is_read() {
    let room = warpwright_task::MAX_SOURCE_BYTES - 300;
    for (open, middle, close) in [
        ("(", "x", ")"),
        ("-", "x", ""),
        ("[", "x", "]"),
        ("", "x", "+x"),
        ("", "x", ".t()"),
        ("lambda:", "x", ""),
        ("f(", "x", ")"),
    ] {
        let depth = room / (open.len() + close.len());
        let value = format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
        if let Err(error) = AstProfile::of(&forward(&format!("return {value}"))) {
            assert!(matches!(*error.kind, TaskErrorKind::Syntax { .. }), "{open}: {error}");
        }
    }
}

/// Statements of a `forward` from operators, with names and constants to be filled in.
fn statements() -> impl Strategy<Value = Vec<(usize, bool)>> {
    prop::collection::vec((0usize..6, any::<bool>()), 1..8)
}

fn written(statements: &[(usize, bool)], name: &str, constant: u32, nested: bool) -> String {
    let mut value = "x".to_owned();
    let mut lines = Vec::new();
    for (operator, keyword) in statements {
        let argument = if *keyword { format!("dim={constant}") } else { constant.to_string() };
        let operator = ["softmax", "cumsum", "roll", "sum", "mean", "amax"][*operator];
        value = format!("torch.{operator}({value}, {argument})");
        if !nested {
            lines.push(format!("{name} = {value}"));
            name.clone_into(&mut value);
        }
    }
    lines.push(format!("return {value}"));
    forward(&lines.join("\n"))
}

proptest! {
    #[test]
    fn renaming_constants_and_nesting_never_change_similarity(
        statements in statements(),
        name in "[a-w][a-z]{0,6}_v",
        constant in 0u32..5000,
    ) {
        let one = written(&statements, "x", 1, false);
        prop_assert!(is_one(alike(&one, &written(&statements, &name, constant, false))));
        prop_assert!(is_one(alike(&one, &written(&statements, "x", constant, true))));
    }

    #[test]
    fn a_similarity_is_symmetric_and_in_range(a in statements(), b in statements()) {
        let (a, b) = (written(&a, "x", 1, false), written(&b, "x", 1, false));
        let similarity = alike(&a, &b);
        prop_assert!((0.0..=1.0).contains(&similarity));
        prop_assert_eq!(similarity.to_bits(), alike(&b, &a).to_bits());
    }

    /// `Unreadable` would be a caught panic.
    #[test]
    fn any_text_is_profiled_or_refused(source in crate::arbitrary::pieces()) {
        if let Err(error) = AstProfile::of(&source) {
            prop_assert!(!matches!(*error.kind, TaskErrorKind::Unreadable), "{source:?}");
        }
    }
}
