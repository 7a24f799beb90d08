//! Places that ask for a GPU by name.

use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::Ranged;

use super::excerpt::Lines;
use super::found::DeviceUse;
use super::names::Names;

/// Calls into `torch.cuda` that answer without a GPU, and those the cpu device answers for the host.
const HARMLESS: [&str; 7] = [
    "torch.cuda.is_available",
    "torch.cuda.device_count",
    "torch.cuda.synchronize",
    "torch.cuda.empty_cache",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "torch.cuda.is_initialized",
];

/// Device uses anywhere in the module, in order of appearance.
pub(crate) fn read(body: &[Stmt], names: &Names<'_>, lines: &Lines<'_>) -> Vec<DeviceUse> {
    let mut search = Search { names, lines, found: Vec::new() };
    search.visit_body(body);
    search.found.sort_by_key(DeviceUse::position);
    search.found
}

struct Search<'s, 'a> {
    names: &'s Names<'a>,
    lines: &'s Lines<'a>,
    found: Vec<DeviceUse>,
}

impl<'a> Visitor<'a> for Search<'_, '_> {
    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Call(call) => {
                let full = self.names.full_name(&call.func);
                if let Some(full) = full.filter(|full| full.starts_with("torch.cuda.")) {
                    if !HARMLESS.contains(&full.as_str()) {
                        let position = self.lines.position(call.start());
                        self.found.push(DeviceUse::Runtime(position, full));
                    }
                } else if let Expr::Attribute(method) = &*call.func
                    && method.attr.as_str() == "cuda"
                {
                    self.found.push(DeviceUse::Method(self.lines.position(method.attr.start())));
                }
            }
            Expr::StringLiteral(literal) if is_device(literal.value.to_str()) => {
                self.found.push(DeviceUse::Name(self.lines.position(literal.start())));
            }
            _ => {}
        }
        walk_expr(self, expression);
    }
}

fn is_device(text: &str) -> bool {
    text == "cuda" || text.strip_prefix("cuda:").is_some_and(|n| n.parse::<u8>().is_ok())
}
