//! The loops of a row program's passes.

use super::program::RowTune;
use crate::emit::elementwise::mentions;
use crate::emit::{Emitter, Line};

/// A piece of the program's text whose layout is decided at the end.
pub(super) enum Piece {
    Lines(Vec<String>),
    Pass { vectors: Vec<String>, lines: Vec<Line>, stores: Vec<(String, String)>, lanes: bool },
}

/// Lays out the loops of a pass.
pub(super) struct Layout<'a> {
    pub(super) tune: &'a RowTune,
    pub(super) loops: &'a [(String, i64)],
    pub(super) vec: i64,
    pub(super) cols: i64,
    pub(super) items: i64,
    pub(super) index_type: &'a str,
    pub(super) emitter: &'a Emitter<'a>,
}

impl Layout<'_> {
    fn exact(&self) -> bool {
        self.cols == self.items * self.tune.threads * self.vec
    }

    /// Whether every thread makes exactly one access to a row and keeps the loaded elements.
    pub(super) fn is_single(&self) -> bool {
        self.tune.threads > 1 && self.tune.keep && self.items == 1 && self.exact() && self.vec > 1
    }

    /// The thread's position in the row, and all loads that depend on nothing else.
    pub(super) fn begin_single(&self, body: &mut Vec<String>, pieces: &mut [Piece]) {
        body.push("constexpr int item = 0;".to_owned());
        body.push(format!("const {} col0 = (int)threadIdx.x * kVec;", self.index_type));
        let params: Vec<&str> =
            self.emitter.reads.iter().map(|n| self.emitter.param_of(*n)).collect();
        let known = |word: &str| {
            word.is_empty()
                || word.starts_with(|c: char| c.is_ascii_digit())
                || ["load", "load_streaming", "kVec", "row", "col0"].contains(&word)
                || params.contains(&word)
        };
        for piece in pieces {
            let Piece::Pass { vectors, .. } = piece else { continue };
            vectors.retain(|line| {
                let plain = line.strip_prefix("const auto ").and_then(|l| l.split_once(" = "));
                let ready = plain.is_some_and(|(_, value)| {
                    value.split(|c: char| !c.is_alphanumeric() && c != '_').all(known)
                });
                if ready {
                    body.push(line.clone());
                }
                !ready
            });
        }
    }

    pub(super) fn pass(
        &self,
        body: &mut Vec<String>,
        vectors: &[String],
        lines: &[Line],
        stores: &[(String, String)],
        lanes: bool,
    ) {
        let statements = self.emitter.with_kept(lines);
        if self.tune.threads == 1 {
            self.serial(body, &statements, lanes);
            return;
        }
        let t = self.index_type;
        let exact = self.exact();
        let keep = self.tune.keep;
        let first = if self.vec > 1 { "col0" } else { "col" };
        let wide = if self.vec > 1 { " * kVec" } else { "" };
        let mut depth = 1;
        if self.is_single() {
            body.push("{".to_owned());
        } else if keep {
            body.push("#pragma unroll".to_owned());
            body.push("for (int item = 0; item < kItems; ++item) {".to_owned());
            body.push(format!("const {t} {first} = (item * kThreads + (int)threadIdx.x){wide};"));
            if !exact {
                body.push(format!("if ({first} < kCols) {{"));
                depth += 1;
            }
        } else {
            // Small steps one by one would wait for each load.
            if self.vec == 1
                && statements.len() < 24
                && !statements.iter().any(|s| s.contains("for ("))
            {
                body.push("#pragma unroll 4".to_owned());
            }
            body.push(format!(
                "for ({t} {first} = (int)threadIdx.x{wide}; {first} < kCols; {first} += kThreads{wide}) {{"
            ));
        }
        body.extend(vectors.iter().cloned());
        body.extend(stores.iter().map(|s| s.0.clone()));
        if self.vec > 1 {
            body.push("#pragma unroll".to_owned());
            body.push("for (int j = 0; j < kVec; ++j) {".to_owned());
            depth += 1;
            if statements.iter().any(|s| mentions(s, "col")) {
                body.push(format!("const {t} col = col0 + j;"));
            }
        } else if statements.iter().chain(vectors).any(|s| mentions(s, "j")) {
            body.push("constexpr int j = 0;".to_owned());
        }
        body.extend(statements);
        if self.vec > 1 {
            body.push("}".to_owned());
            depth -= 1;
        }
        body.extend(stores.iter().map(|s| s.1.clone()));
        body.extend((0..depth).map(|_| "}".to_owned()));
    }

    /// One thread walks over the whole row.
    fn serial(&self, body: &mut Vec<String>, statements: &[String], lanes: bool) {
        let (last, before) = match self.loops.split_last() {
            Some((last, before)) => (last.1, before),
            None => (1, &[][..]),
        };
        for (name, extent) in before {
            body.push(format!("for (int {name} = 0; {name} < {extent}; ++{name}) {{"));
        }
        if lanes {
            let main = last - last % self.vec;
            body.push(format!("for (int col0 = 0; col0 < {main}; col0 += kVec) {{"));
            body.push("for (int j = 0; j < kVec; ++j) {".to_owned());
            body.push("const int col = col0 + j;".to_owned());
            body.extend(statements.iter().cloned());
            body.push("}".to_owned());
            body.push("}".to_owned());
            if main < last {
                body.push(format!("for (int col = {main}; col < {last}; ++col) {{"));
                body.push(format!("const int j = col - {main};"));
                body.extend(statements.iter().cloned());
                body.push("}".to_owned());
            }
        } else {
            body.push(format!("for (int col = 0; col < {last}; ++col) {{"));
            body.extend(statements.iter().cloned());
            body.push("}".to_owned());
        }
        body.extend(before.iter().map(|_| "}".to_owned()));
    }
}
