//! pq-grams: the small pieces by which trees are compared.
//!
//! Augsten, Böhlen and Gamper, "Approximate matching of hierarchical data using pq-grams", VLDB 2005:
//! a node with the `p - 1` labels above it, and a window over `q` of its children, where missing ones
//! are blank. The distance of two trees is 1 minus Dice's coefficient of their bags of pq-grams; it
//! bounds the fan-out weighted edit distance from below, and takes time linear in the trees where the
//! edit distance takes cubic. Here `p` is 2 and `q` is 3.

use super::tree::Tree;
use super::{label_hash, then};

/// Stands where there is no node. No label hashes to it but by chance.
const BLANK: u64 = 0;

/// Of all trees together: a forest has no order.
pub(crate) fn grams(forest: &[Tree]) -> Vec<u64> {
    let mut grams = Vec::new();
    for tree in forest {
        collect(BLANK, tree, label_hash(&tree.label), &mut grams);
    }
    grams
}

fn collect(above: u64, tree: &Tree, label: u64, out: &mut Vec<u64>) {
    let stem = then(then(0, above), label);
    let gram = |window: [u64; 3]| window.into_iter().fold(stem, then);
    if tree.children.is_empty() {
        out.push(gram([BLANK; 3]));
        return;
    }
    let mut window = [BLANK; 3];
    let labels: Vec<u64> = tree.children.iter().map(|child| label_hash(&child.label)).collect();
    for &next in labels.iter().chain(&[BLANK, BLANK]) {
        window = [window[1], window[2], next];
        out.push(gram(window));
    }
    for (child, label_of_child) in tree.children.iter().zip(labels) {
        collect(label, child, label_of_child, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::similarity::Bag;

    fn tree(label: &str, children: Vec<Tree>) -> Tree {
        Tree::step(label, children)
    }

    fn leaf(label: &str) -> Tree {
        tree(label, Vec::new())
    }

    /// Counted by hand: a leaf has one gram, a node with k children k + 2 and those of its children.
    #[test]
    fn number_of_grams_matches_the_definition() {
        assert_eq!(grams(&[leaf("a")]).len(), 1);
        let t1 = tree("a", vec![tree("a", vec![leaf("e"), leaf("b")]), leaf("b"), leaf("c")]);
        // (3 + 2) of the root, (2 + 2) of its first child, 4 leaves.
        assert_eq!(grams(&[t1]).len(), 13);
    }

    /// Of a(a(e b) b c) and a(a(e b) b x), 9 of 13 are common, counted by hand: the windows (., ., a), (., a, b) of the root, all four windows
    /// of the inner a, leaves e, b and b below the root.
    #[test]
    fn changed_leaf_changes_only_the_windows_containing_it() {
        let of = |last: &str| {
            let inner = tree("a", vec![leaf("e"), leaf("b")]);
            Bag::from(grams(&[tree("a", vec![inner, leaf("b"), leaf(last)])]))
        };
        assert!((of("c").dice(&of("x")) - 9.0 / 13.0).abs() < 1e-12);
    }

    #[test]
    fn order_of_children_matters_and_order_of_trees_does_not() {
        let of = |trees: &[Tree]| Bag::from(grams(trees));
        let (ab, ba) =
            (tree("f", vec![leaf("a"), leaf("b")]), tree("f", vec![leaf("b"), leaf("a")]));
        assert_ne!(of(std::slice::from_ref(&ab)), of(std::slice::from_ref(&ba)));
        assert_eq!(of(&[ab.clone(), ba.clone()]), of(&[ba, ab]));
    }
}
