//! Facts about a translation unit that all passes need.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::casts::Casts;
use crate::code::{Macro, Seq, Unit};
use crate::edit::Edits;
use crate::function::{Found, Function, INDICES, leads_to, reach, waits};
use crate::phase::{self, Macros, Shape};
use crate::{division, places};

/// Facts that all passes need.
pub(crate) struct Context<'a, 'u> {
    pub(crate) unit: &'u Unit<'a>,
    pub(crate) found: &'u Found<'a>,
    /// Functions and macros in which a thread may wait for another.
    pub(crate) waits: HashSet<&'a str>,
    /// Device functions that read their indices from the worker, and their callers.
    pub(crate) device: HashSet<&'a str>,
    /// Macros that mention an index.
    indexed_macros: HashSet<&'a str>,
    /// Names of macros.
    pub(crate) macros: HashSet<&'a str>,
    /// Names of kernels defined here.
    pub(crate) kernels: HashSet<&'a str>,
    /// Kernels whose names are also names of variables.
    pub(crate) shadowed: HashSet<&'a str>,
    /// Names that the file itself defines: not rewritten.
    pub(crate) own: HashSet<&'a str>,
    /// Kernels that can run without their bounds check.
    pub(crate) shapes: HashMap<&'a str, Shape>,
}

impl<'a, 'u> Context<'a, 'u> {
    pub(crate) fn new(unit: &'u Unit<'a>, found: &'u Found<'a>) -> Self {
        let mut waiting = reach(unit, found, waits);
        let indexed_macros = leads_to(&words(&unit.macros), |word| INDICES.contains(&word));
        let mut context = Self {
            unit,
            found,
            waits: HashSet::new(),
            device: HashSet::new(),
            indexed_macros,
            macros: unit.macros.iter().map(|m| m.name).collect(),
            kernels: found.functions.iter().filter(|f| f.kernel).map(|f| f.name).collect(),
            shadowed: HashSet::new(),
            own: found.functions.iter().map(|f| f.name).collect(),
            shapes: HashMap::new(),
        };
        let declared = found.functions.iter().map(|f| f.open - 1).collect();
        context.shadowed = shadowed(&unit.main, &context.kernels, &declared);
        context.own.extend(unit.macros.iter().map(|m| m.name));
        let lookups: HashSet<&'a str> = found
            .functions
            .iter()
            .filter(|f| !f.kernel && context.indexed(f))
            .map(|f| f.name)
            .collect();
        let mut device = reach(unit, found, |word| lookups.contains(word));
        device.extend(&lookups);
        // A functor is called through a template parameter, by no name of its own.
        for set in [&mut waiting, &mut device] {
            if set.contains("operator()") {
                set.extend(&context.kernels);
            }
        }
        context.waits = waiting;
        context.device = device;
        context
    }

    /// Finds bounds checks in kernels whose threads run independently. Kernels that share a name
    /// are left unchanged, because a launch cannot tell them apart.
    pub(crate) fn find_shapes(&mut self, edits: &mut Edits) {
        let named =
            self.unit.macros.iter().filter(|m| (0..m.body.len()).any(|i| m.body.is_ident(i)));
        let macros = Macros {
            casts: Casts::new(&self.unit.main, &Edits::default()),
            indexed: self.indexed_macros.clone(),
            opaque: Rc::new(named.map(|m| m.name).collect()),
        };
        let mut same: HashMap<&str, u32> = HashMap::new();
        for function in self.found.functions.iter().filter(|f| f.body.is_some()) {
            *same.entry(function.name).or_default() += 1;
        }
        let known = Rc::new(places::Known::new(&self.unit.macros, self.odd_macros()));
        let mut past = 0;
        for function in &self.found.functions {
            // A lambda's body is part of another's.
            let Some(body) = function.body.filter(|b| b.0 >= past && self.indexed(function)) else {
                continue;
            };
            past = body.1;
            let seq = &self.unit.main;
            let mut places = places::declarations(self.unit, function, &known, edits);
            let alone = same.get(function.name) == Some(&1);
            if alone && let Some(shape) = self.shape(function, &macros, &mut places, edits) {
                self.shapes.insert(function.name, shape);
            }
            places.subscripts(seq, body, edits);
        }
    }

    /// Macros that are not a single operand, or that mention an index.
    fn odd_macros(&self) -> HashSet<&'a str> {
        let operand = |m: &&Macro<'a>| {
            let brackets = m.body.text(0) == "(" && m.body.close(0) == Some(m.body.len() - 1);
            m.body.len() == 1 || brackets
        };
        let all = &self.unit.macros;
        let mut odd: HashSet<&'a str> =
            all.iter().filter(|m| !operand(m)).map(|m| m.name).collect();
        odd.extend(&self.indexed_macros);
        let reached = leads_to(&words(all), |word| odd.contains(word));
        odd.extend(reached);
        odd
    }

    /// The shape of a kernel whose threads run independently.
    fn shape(
        &self,
        function: &Function<'a>,
        macros: &Macros<'a>,
        places: &mut places::Places<'a>,
        edits: &mut Edits,
    ) -> Option<Shape> {
        let name = function.name;
        if !function.kernel || self.waits.contains(name) || self.device.contains(name) {
            return None;
        }
        let shape = phase::analyse(&self.unit.main, function, macros, places, edits);
        if let Some((open, close)) = function.body.filter(|_| shape.guard) {
            division::rewrite(&self.unit.main, open + 1, close, edits);
        }
        Some(shape)
    }

    /// Whether a function's body, or a constructor's initialisers, mention an index, directly or
    /// through a macro.
    pub(crate) fn indexed(&self, function: &Function<'a>) -> bool {
        function.body.is_some_and(|(_, close)| {
            (function.close..close).any(|i| {
                let word = self.unit.main.text(i);
                INDICES.contains(&word) || self.indexed_macros.contains(word)
            })
        })
    }
}

/// The words of each macro, over all its definitions.
fn words<'a>(macros: &[Macro<'a>]) -> HashMap<&'a str, HashSet<&'a str>> {
    let mut words: HashMap<&'a str, HashSet<&'a str>> = HashMap::new();
    for m in macros {
        words.entry(m.name).or_default().extend((0..m.body.len()).map(|i| m.body.text(i)));
    }
    words
}

/// Kernels whose names are also names of variables or parameters: a launch by that name alone is
/// ambiguous.
fn shadowed<'a>(
    seq: &Seq<'a>,
    kernels: &HashSet<&'a str>,
    declared: &HashSet<usize>,
) -> HashSet<&'a str> {
    let declares = |i: usize| {
        let before = seq.text(i.wrapping_sub(1));
        let pointer = before == "*" && seq.text(i + 1) == ")" && seq.text(i + 2) == "(";
        let typed = i > 0
            && seq.is_ident(i - 1)
            && !matches!(
                before,
                "return"
                    | "else"
                    | "do"
                    | "case"
                    | "throw"
                    | "template"
                    | "typename"
                    | "co_return"
                    | "goto"
            )
            && !matches!(seq.text(i + 1), "<<<" | "<");
        let deduced = matches!(before, "&" | "&&") && i > 1 && seq.text(i - 2) == "auto";
        pointer || typed || deduced
    };
    (0..seq.len())
        .filter(|&i| kernels.contains(seq.text(i)) && !declared.contains(&i) && declares(i))
        .map(|i| seq.text(i))
        .collect()
}
