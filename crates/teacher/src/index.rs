//! Index arithmetic: integer expressions over loop variables, kept in a simplified normal form.
//!
//! Views, transposes, slices, flips, rolls, broadcasts and reshapes all become a list of
//! expressions that give the source position of an element of the result. Composing views is
//! substitution. The normal form is a sum of integer multiples of atoms (a variable, a floor
//! division or a remainder). It lets the planner recognise equal accesses, and the code generator
//! recognise accesses that are contiguous in the innermost variable.
//!
//! Division rounds down and remainders are non-negative; every divisor is positive.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// A loop variable (or an index loaded from memory) with values in `0..extent`. Its name is its C++
/// identifier.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Var {
    pub(crate) name: Arc<str>,
    pub(crate) extent: i64,
}

/// A term's variable part: a variable, a floor division or a remainder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Atom {
    Var(Var),
    Div(Box<Expr>, i64),
    Mod(Box<Expr>, i64),
}

/// `constant + sum of coefficient * atom`, no zero coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Expr {
    constant: i64,
    terms: BTreeMap<Atom, i64>,
}

impl Expr {
    pub(crate) fn constant(value: i64) -> Self {
        Self { constant: value, terms: BTreeMap::new() }
    }

    /// A variable; one that can only be 0 is the constant 0.
    pub(crate) fn var(name: &str, extent: i64) -> Self {
        if extent <= 1 {
            return Self::constant(0);
        }
        Self::atom(Atom::Var(Var { name: name.into(), extent }))
    }

    fn atom(atom: Atom) -> Self {
        Self { constant: 0, terms: BTreeMap::from([(atom, 1)]) }
    }

    pub(crate) fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    pub(crate) fn add(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.constant += other.constant;
        for (atom, c) in &other.terms {
            sum.push(atom, *c);
        }
        sum.recombine()
    }

    pub(crate) fn add_const(&self, value: i64) -> Self {
        let mut sum = self.clone();
        sum.constant += value;
        sum
    }

    pub(crate) fn mul(&self, factor: i64) -> Self {
        if factor == 0 {
            return Self::default();
        }
        Self {
            constant: self.constant * factor,
            terms: self.terms.iter().map(|(a, c)| (a.clone(), c * factor)).collect(),
        }
    }

    fn push(&mut self, atom: &Atom, coefficient: i64) {
        let c = self.terms.entry(atom.clone()).or_insert(0);
        *c += coefficient;
        if *c == 0 {
            self.terms.remove(atom);
        }
    }

    /// Smallest and largest value, by interval arithmetic (the true range may be narrower).
    pub(crate) fn range(&self) -> (i64, i64) {
        let mut low = self.constant;
        let mut high = self.constant;
        for (atom, c) in &self.terms {
            let (l, h) = match atom {
                Atom::Var(v) => (0, v.extent - 1),
                Atom::Div(e, d) => {
                    let (l, h) = e.range();
                    (l.div_euclid(*d), h.div_euclid(*d))
                }
                Atom::Mod(_, d) => (0, d - 1),
            };
            let (a, b) = (l * c, h * c);
            low += a.min(b);
            high += a.max(b);
        }
        (low, high)
    }

    /// Floor division.
    pub(crate) fn div(&self, d: i64) -> Self {
        if d == 1 {
            return self.clone();
        }
        let (whole, rest) = self.split(d);
        let (low, high) = rest.range();
        if low >= 0 && high < d {
            return whole;
        }
        if let Some(c) = rest.as_constant() {
            return whole.add_const(c.div_euclid(d));
        }
        let (g, coarse) = rest.coarsen(d);
        let quotient = if g > 1 {
            coarse.div(d / g)
        } else if let Some((Atom::Div(inner, a), 0)) = rest.single() {
            inner.div(a * d)
        } else if let Some((Atom::Mod(inner, a), 0)) = rest.single()
            && a % d == 0
        {
            inner.div(d).rem(a / d)
        } else {
            Self::atom(Atom::Div(Box::new(rest), d))
        };
        whole.add(&quotient)
    }

    /// Remainder of floor division.
    pub(crate) fn rem(&self, d: i64) -> Self {
        if d == 1 {
            return Self::default();
        }
        let (_, rest) = self.split(d);
        let (low, high) = rest.range();
        if low >= 0 && high < d {
            return rest;
        }
        if let Some(c) = rest.as_constant() {
            return Self::constant(c.rem_euclid(d));
        }
        let (g, coarse) = rest.coarsen(d);
        if g > 1 {
            let fine = rest.add(&coarse.mul(-g));
            return coarse.rem(d / g).mul(g).add(&fine);
        }
        if let Some((Atom::Mod(inner, a), 0)) = rest.single()
            && a % d == 0
        {
            return inner.rem(d);
        }
        Self::atom(Atom::Mod(Box::new(rest), d))
    }

    /// `self = d * whole + rest`: terms divisible by `d` are moved from the rest to `whole`.
    fn split(&self, d: i64) -> (Self, Self) {
        let constant = self.constant.div_euclid(d);
        let mut whole = Self::constant(constant);
        let mut rest = Self::constant(self.constant - constant * d);
        for (atom, c) in &self.terms {
            if c % d == 0 {
                whole.terms.insert(atom.clone(), c / d);
            } else {
                rest.terms.insert(atom.clone(), *c);
            }
        }
        (whole, rest)
    }

    /// The largest divisor `g` of `d` with `self = g * coarse + fine` and `0 <= fine < g`, so that
    /// dividing by `d` is dividing `coarse` by `d / g`. Returns `(1, self)` if there is none.
    fn coarsen(&self, d: i64) -> (i64, Self) {
        let mut candidates: Vec<i64> = self.terms.values().map(|c| gcd(c.abs(), d)).collect();
        candidates.sort_unstable();
        candidates.dedup();
        for g in candidates.into_iter().rev().filter(|g| *g > 1 && *g < d) {
            let (coarse, fine) = self.split(g);
            let (low, high) = fine.range();
            if low >= 0 && high < g {
                return (g, coarse);
            }
        }
        (1, self.clone())
    }

    fn single(&self) -> Option<(Atom, i64)> {
        let mut terms = self.terms.iter();
        match (terms.next(), terms.next()) {
            (Some((atom, 1)), None) => Some((atom.clone(), self.constant)),
            _ => None,
        }
    }

    /// Undoes an unflattening: `b*(x/b) + x%b = x` and `b*((x/b)%c) + x%b = x%(b*c)`.
    fn recombine(mut self) -> Self {
        'again: loop {
            for (atom, c) in &self.terms {
                let Atom::Mod(x, b) = atom else { continue };
                let quotient = x.div(*b);
                let whole = match quotient.single() {
                    Some((q, 0)) if self.terms.get(&q) == Some(&(c * b)) => {
                        Some((q, (**x).clone()))
                    }
                    _ => None,
                };
                let partial = || {
                    self.terms.iter().find_map(|(other, k)| match other {
                        Atom::Mod(y, m) if *k == c * b && **y == quotient => {
                            Some((other.clone(), x.rem(b * m)))
                        }
                        _ => None,
                    })
                };
                // A quotient that is itself a sum: all its terms must be there.
                let spread = || {
                    let wanted = quotient.mul(c * b);
                    let present = quotient.terms.len() > 1
                        && wanted.terms.iter().all(|(a, k)| self.terms.get(a) == Some(k));
                    present.then(|| (wanted, (**x).clone()))
                };
                if let Some((other, joined)) = whole.or_else(partial) {
                    let (atom, c) = (atom.clone(), *c);
                    self.terms.remove(&atom);
                    self.terms.remove(&other);
                    self = self.add(&joined.mul(c));
                    continue 'again;
                }
                if let Some((wanted, joined)) = spread() {
                    let (atom, c) = (atom.clone(), *c);
                    self.terms.remove(&atom);
                    self = self.add(&wanted.mul(-1)).add(&joined.mul(c));
                    continue 'again;
                }
            }
            return self;
        }
    }

    /// Replaces variables by expressions.
    pub(crate) fn substitute(&self, lookup: &dyn Fn(&Var) -> Option<Expr>) -> Self {
        let mut sum = Self::constant(self.constant);
        for (atom, c) in &self.terms {
            let value = match atom {
                Atom::Var(v) => lookup(v).unwrap_or_else(|| Self::atom(atom.clone())),
                Atom::Div(e, d) => e.substitute(lookup).div(*d),
                Atom::Mod(e, d) => e.substitute(lookup).rem(*d),
            };
            sum = sum.add(&value.mul(*c));
        }
        sum
    }

    /// Calls `visit` with every variable, with repetition.
    pub(crate) fn visit_vars(&self, visit: &mut dyn FnMut(&Var)) {
        for atom in self.terms.keys() {
            match atom {
                Atom::Var(v) => visit(v),
                Atom::Div(e, _) | Atom::Mod(e, _) => e.visit_vars(visit),
            }
        }
    }

    /// Whether there is neither division nor remainder.
    pub(crate) fn is_linear(&self) -> bool {
        self.terms.keys().all(|a| matches!(a, Atom::Var(_)))
    }

    /// Whether the variable occurs.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        let mut found = false;
        self.visit_vars(&mut |v| found |= &*v.name == name);
        found
    }

    /// If the variable occurs only linearly: its coefficient (0 if it does not occur).
    pub(crate) fn stride_of(&self, name: &str) -> Option<i64> {
        let mut coefficient = 0;
        for (atom, c) in &self.terms {
            match atom {
                Atom::Var(v) if &*v.name == name => coefficient = *c,
                Atom::Div(e, _) | Atom::Mod(e, _) if e.mentions(name) => return None,
                _ => {}
            }
        }
        Some(coefficient)
    }

    /// Whether every value is a multiple of `d`, judged term by term, ignoring variable `but`.
    pub(crate) fn divisible_but(&self, d: i64, but: &str) -> bool {
        self.constant % d == 0
            && self
                .terms
                .iter()
                .all(|(atom, c)| c % d == 0 || matches!(atom, Atom::Var(v) if &*v.name == but))
    }

    /// A multiple of `d`, judged term by term, and the remainder, a number below `d`.
    pub(crate) fn split_multiple(&self, d: i64) -> Option<(Self, i64)> {
        let rest = self.constant.rem_euclid(d);
        let whole = self.add_const(-rest);
        whole.divisible_but(d, "").then_some((whole, rest))
    }

    /// Whether a sum of some of the terms can leave the range of `int`.
    fn exceeds_int(&self) -> bool {
        let part = |side: fn(i64, i64) -> i64| {
            let ends = self.terms.iter().map(|(atom, c)| {
                let (low, high) = Self::atom(atom.clone()).mul(*c).range();
                side(side(low, high), 0)
            });
            ends.fold(side(self.constant, 0), i64::saturating_add)
        };
        part(i64::min) < i64::from(i32::MIN) || part(i64::max) > i64::from(i32::MAX)
    }

    /// C++ text, in 64 bits if 31 may be too few or if `wide` is set.
    pub(crate) fn print(&self, wide: bool) -> String {
        let wide = wide || self.exceeds_int();
        let mut out = String::new();
        // Large strides first: rows before columns, as people write it.
        let mut terms: Vec<(&Atom, &i64)> = self.terms.iter().collect();
        terms.sort_by_key(|(_, c)| std::cmp::Reverse(**c));
        for (atom, c) in terms {
            let text = match atom {
                Atom::Var(v) if wide => format!("(long long){}", v.name),
                Atom::Var(v) => v.name.to_string(),
                Atom::Div(e, d) => format!("{} / {d}", e.print_factor(wide)),
                Atom::Mod(e, d) => format!("{} % {d}", e.print_factor(wide)),
            };
            let plain = matches!(atom, Atom::Var(_));
            let sign = match (out.is_empty(), *c < 0) {
                (true, true) => "-",
                (true, false) => "",
                (false, true) => " - ",
                (false, false) => " + ",
            };
            out.push_str(sign);
            let _ = match (c.abs(), plain) {
                (1, true) => write!(out, "{text}"),
                (1, false) => write!(out, "({text})"),
                (k, true) => write!(out, "{text} * {k}"),
                (k, false) => write!(out, "({text}) * {k}"),
            };
        }
        match (out.is_empty(), self.constant) {
            (true, c) => out = c.to_string(),
            (false, 0) => {}
            (false, c) if c > 0 => _ = write!(out, " + {c}"),
            (false, c) => _ = write!(out, " - {}", -c),
        }
        out
    }

    fn print_factor(&self, wide: bool) -> String {
        let text = self.print(wide);
        let simple = text.chars().all(|c| c.is_alphanumeric() || c == '_');
        if simple { text } else { format!("({text})") }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Row-major strides of a shape.
pub(crate) fn strides_of(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for d in (0..shape.len().saturating_sub(1)).rev() {
        strides[d] = strides[d + 1] * shape[d + 1].max(1);
    }
    strides
}

/// Sum of index times stride.
pub(crate) fn dot(index: &[Expr], strides: &[i64]) -> Expr {
    index.iter().zip(strides).fold(Expr::default(), |sum, (e, s)| sum.add(&e.mul(*s)))
}

/// The index in `shape` of row-major position `flat`.
pub(crate) fn unflatten(flat: &Expr, shape: &[i64]) -> Vec<Expr> {
    let strides = strides_of(shape);
    shape
        .iter()
        .zip(&strides)
        .map(
            |(extent, stride)| {
                if *extent <= 1 { Expr::default() } else { flat.div(*stride).rem(*extent) }
            },
        )
        .collect()
}

/// Number of elements.
pub(crate) fn numel(shape: &[i64]) -> i64 {
    shape.iter().product()
}

#[cfg(test)]
mod tests;
