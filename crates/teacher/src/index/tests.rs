use super::*;
use proptest::prelude::*;

fn eval(e: &Expr, env: &dyn Fn(&str) -> i64) -> i64 {
    e.terms.iter().fold(e.constant, |sum, (atom, c)| {
        sum + c * match atom {
            Atom::Var(v) => env(&v.name),
            Atom::Div(e, d) => eval(e, env).div_euclid(*d),
            Atom::Mod(e, d) => eval(e, env).rem_euclid(*d),
        }
    })
}

type Map = Box<dyn Fn(&[Expr]) -> Vec<Expr>>;

#[derive(Clone, Debug)]
enum Step {
    Reshape(usize),
    Swap,
    Flip,
    Roll(i64),
}

fn factorings(n: i64) -> Vec<Vec<i64>> {
    let mut out = vec![vec![n]];
    for a in 2..=n {
        if n % a == 0 {
            for mut rest in factorings(n / a) {
                if rest != [1] {
                    rest.insert(0, a);
                    out.push(rest);
                }
            }
        }
    }
    out
}

proptest! {
    /// A chain of views, composed symbolically, reads the element that naive enumeration reads.
    #[test]
    fn views_compose(steps in prop::collection::vec(prop_oneof![
        (0..100usize).prop_map(Step::Reshape), Just(Step::Swap), Just(Step::Flip),
        (0..7i64).prop_map(Step::Roll)], 1..6), n in prop::sample::select(vec![12i64, 16, 24, 30])) {
        // Naively: the flat source position of every element.
        let mut shape = vec![n];
        let mut table: Vec<i64> = (0..n).collect();
        // Symbolically: maps from later shapes to earlier ones.
        let mut maps: Vec<(Vec<i64>, Vec<Expr>, Vec<i64>)> = Vec::new();
        for step in steps {
            let before = shape.clone();
            let (after, map): (Vec<i64>, Map) = match step {
                Step::Reshape(k) => {
                    let all = factorings(n);
                    let to = all[k % all.len()].clone();
                    let (from, strides) = (before.clone(), strides_of(&to));
                    (to, Box::new(move |i| unflatten(&dot(i, &strides), &from)))
                }
                Step::Swap => {
                    let mut to = before.clone();
                    to.reverse();
                    (to, Box::new(|i| i.iter().rev().cloned().collect()))
                }
                Step::Flip => {
                    let last = before[before.len() - 1];
                    (before.clone(), Box::new(move |i| {
                        let mut i = i.to_vec();
                        let e = i.pop().unwrap();
                        i.push(e.mul(-1).add_const(last - 1));
                        i
                    }))
                }
                Step::Roll(by) => {
                    let first = before[0];
                    (before.clone(), Box::new(move |i| {
                        let mut i = i.to_vec();
                        i[0] = i[0].add_const(by).rem(first);
                        i
                    }))
                }
            };
            let vars: Vec<Expr> = after.iter().enumerate()
                .map(|(d, e)| Expr::var(&format!("d{d}"), *e)).collect();
            let exprs = map(&vars);
            let positions: Vec<i64> = (0..n).map(|flat| {
                let s = strides_of(&after);
                let env = |name: &str| { let d: usize = name[1..].parse().unwrap(); flat / s[d] % after[d] };
                let index: Vec<i64> = exprs.iter().map(|e| eval(e, &env)).collect();
                let bs = strides_of(&before);
                table[index.iter().zip(&bs).map(|(i, s)| i * s).sum::<i64>() as usize]
            }).collect();
            table = positions;
            shape = after.clone();
            maps.push((before, exprs, after));
        }
        let q = Expr::var("q", n / 2).mul(2).add(&Expr::var("j", 2));
        let mut index = unflatten(&q, &shape);
        for (_, exprs, after) in maps.iter().rev() {
            let here = index.clone();
            let _ = after;
            index = exprs.iter().map(|e| e.substitute(&|v| here.get(v.name[1..].parse::<usize>().unwrap()).cloned())).collect();
        }
        let source = &index[0];
        for flat in 0..n {
            let env = |name: &str| if name == "q" { flat / 2 } else { flat % 2 };
            prop_assert_eq!(eval(source, &env), table[flat as usize], "{:?}", source);
            let (low, high) = source.range();
            prop_assert!(low <= table[flat as usize] && table[flat as usize] <= high);
        }
    }
}

#[test]
fn group_norm_index_round_trips() {
    // row = (n, g), col in the group; stored as [N, C, H, W] and viewed again as groups.
    let (n, g, k) = (4, 8, 4 * 9);
    let row = Expr::var("row", n * g);
    let flat = row.mul(k).add(&Expr::var("col", k));
    let out = unflatten(&flat, &[n, 32, 3, 3]);
    let back = unflatten(&dot(&out, &strides_of(&[n, 32, 3, 3])), &[n, g, 4, 9]);
    assert_eq!(dot(&back[..2], &[g, 1]), row);
    insta::assert_snapshot!(out[1].print(false), @"(row % 8) * 4 + (col / 9)");
}

#[test]
fn vectors_do_not_cross_a_row() {
    let flat = Expr::var("q", 1024).mul(4).add(&Expr::var("j", 4));
    assert_eq!(flat.rem(64).stride_of("j"), Some(1));
    assert_eq!(flat.div(64).stride_of("j"), Some(0));
    assert_eq!(flat.rem(6).stride_of("j"), None);
}

#[test]
fn offsets_beyond_31_bits_are_written_in_64() {
    // A column of a matrix with 3e9 elements, and of one with 3e8.
    let (row, col) = (Expr::var("row", 300_000), Expr::var("col", 8));
    assert_eq!(row.mul(10_000).add(&col).print(false), "(long long)row * 10000 + (long long)col");
    assert_eq!(row.mul(1_000).add(&col).print(false), "row * 1000 + col");
    // The difference is small, but a part of it is not.
    let back = row.mul(-10_000).add_const(2_999_990_000);
    assert_eq!(back.print(false), "-(long long)row * 10000 + 2999990000");
    // Inside a division.
    let flat = row.mul(10_000).add(&Expr::var("k", 10_000)).div(7);
    assert!(flat.print(false).starts_with("(((long long)row"), "{}", flat.print(false));
}
