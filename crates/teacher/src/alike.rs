//! Deduplicates kernels that differ only in names: repeated blocks of a model share one file.

use std::collections::{BTreeMap, BTreeSet};

/// A kernel's text with its variables numbered in order of appearance. Kernels with the same
/// skeleton compute the same function of their parameters.
///
/// `names` are the graph's node names, from which variables are named (`conv_1`, `conv_1_at`). The
/// rest of the text (types, constants, functions) is unchanged. Full-line comments are dropped,
/// because they name the computed value.
pub(crate) fn skeleton(text: &str, name: &str, names: &BTreeSet<&str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
        let mut rest = line;
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            out.push_str(&rest[..start]);
            let tail = &rest[start..];
            let end =
                tail.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(tail.len());
            let (word, after) = tail.split_at(end);
            let called = after.starts_with(['(', '<']);
            if let Some(suffix) = word.strip_prefix(name).filter(|s| own(s)) {
                out.push_str("NAME");
                out.push_str(suffix);
            } else if !called && is_variable(word, names) {
                let next = numbers.len();
                out.push_str(&format!("%{}", numbers.entry(word).or_insert(next)));
            } else {
                out.push_str(word);
            }
            rest = after;
        }
        out.push_str(rest);
        out.push('\n');
    }
    out
}

/// The suffix of a kernel's own name: `softmax_launcher`.
fn own(suffix: &str) -> bool {
    matches!(suffix, "_kernel" | "_launcher" | "_epilogue_kernel" | "_epilogue_launcher")
}

/// Whether a word is a node's name, or begins with one and an underscore.
fn is_variable(word: &str, names: &BTreeSet<&str>) -> bool {
    let ends = word.match_indices('_').map(|(at, _)| at).chain([word.len()]);
    ends.into_iter().any(|end| names.contains(&word[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: (&str, &str), b: (&str, &str)) -> bool {
        let names = BTreeSet::from(["relu", "relu_1", "x", "tan", "nan"]);
        skeleton(a.0, a.1, &names) == skeleton(b.0, b.1, &names)
    }

    #[test]
    fn renamed_variables_are_equal_kernels() {
        let one = "// Computes relu.\nvoid k_kernel(const float* x, float* relu_out) { relu_out[i] = x[i] < 0 ? 0 : x[i]; }";
        let two = "// Computes relu_1.\nvoid k_2_kernel(const float* relu, float* relu_1_out) { relu_1_out[i] = relu[i] < 0 ? 0 : relu[i]; }";
        assert!(same((one, "k"), (two, "k_2")));
    }

    #[test]
    fn permuted_variables_are_different_kernels() {
        let one = "void k_kernel(float* x, float* relu) { x[i] = relu[i]; }";
        let two = "void k_kernel(float* x, float* relu) { relu[i] = x[i]; }";
        assert!(!same((one, "k"), (two, "k")));
    }

    #[test]
    fn other_functions_constants_or_types_differ() {
        let base = "void k_kernel(float* x) { x[i] = nan_max(x[i], 1.0f); }";
        for (from, to) in [("nan_max", "nan_min"), ("1.0f", "2.0f"), ("float*", "double*")] {
            let other = base.replace(from, to);
            assert!(!same((base, "k"), (&other, "k")), "{other}");
        }
    }
}
