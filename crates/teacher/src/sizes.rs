//! Which numbers of a graph follow from the sizes of its inputs, and how.
//!
//! A graph is traced at several sizes. A *size* is a dim of an input that differs between those
//! samples. A number that differs is taken for a multiple of a size, of a product of sizes, or for
//! that and a constant more, if this is true of all samples. With that rule a graph, or a line of
//! text, can be written for sizes at which nothing was traced. If a number follows no such rule,
//! there is no general form.

use serde_json::Value;

/// Most sizes of a task that are told apart.
const MOST: usize = 3;

/// The dim of an input, named by the positions of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dim {
    pub(crate) input: usize,
    pub(crate) dim: usize,
}

/// The sizes of some samples, one list per sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Samples(Vec<Vec<i64>>);

/// `factor * product of sizes + constant`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    factor: i64,
    /// Positions of sizes.
    of: Vec<usize>,
    constant: i64,
}

impl Rule {
    /// The value at these sizes, unless it is too large.
    fn at(&self, sizes: &[i64]) -> Option<i64> {
        let times = |product: i64, size: &usize| product.checked_mul(*sizes.get(*size)?);
        self.of.iter().try_fold(self.factor, times)?.checked_add(self.constant)
    }

    /// As Python; the sizes are variables with these names.
    fn python(&self, names: &[String]) -> String {
        let mut parts: Vec<String> = Vec::new();
        if self.factor != 1 || self.of.is_empty() {
            parts.push(self.factor.to_string());
        }
        parts.extend(self.of.iter().filter_map(|size| names.get(*size).cloned()));
        let product = parts.join(" * ");
        match self.constant {
            0 => product,
            less if less < 0 => format!("({product} - {})", less.unsigned_abs()),
            more => format!("({product} + {more})"),
        }
    }
}

impl Samples {
    /// Samples at these sizes.
    pub(crate) fn new(samples: Vec<Vec<i64>>) -> Self {
        Self(samples)
    }

    fn count(&self) -> usize {
        self.0.first().map_or(0, Vec::len)
    }

    /// The rule for a number with these values, one per sample.
    pub(crate) fn rule(&self, values: &[i64]) -> Option<Rule> {
        let first = *values.first()?;
        if values.len() != self.0.len() {
            return None;
        }
        if values.iter().all(|value| *value == first) {
            return Some(Rule { factor: 0, of: vec![], constant: first });
        }
        let products: Vec<(Vec<usize>, Vec<i64>)> = (1..1usize << self.count().min(MOST))
            .filter_map(|set| {
                let of: Vec<usize> = (0..MOST).filter(|size| set >> size & 1 == 1).collect();
                let product = Rule { factor: 1, of: of.clone(), constant: 0 };
                let at: Option<Vec<i64>> = self.0.iter().map(|sizes| product.at(sizes)).collect();
                at.map(|at| (of, at))
            })
            .collect();
        let fits = |rule: &Rule| {
            let mut pairs = self.0.iter().zip(values);
            pairs.all(|(sizes, value)| rule.at(sizes) == Some(*value))
        };
        let multiples = products.iter().filter_map(|(of, at)| {
            let start = *at.first()?;
            let factor = first.checked_div(start)?;
            Some(Rule { factor, of: of.clone(), constant: 0 }).filter(fits)
        });
        let shifted = products.iter().filter_map(|(of, at)| {
            let mut pairs = at.iter().zip(values);
            let (at, value) = pairs.next()?;
            let (other_at, other) = pairs.find(|pair| pair.0 != at)?;
            let factor = value.checked_sub(*other)?.checked_div(at.checked_sub(*other_at)?)?;
            let constant = value.checked_sub(at.checked_mul(factor)?)?;
            Some(Rule { factor, of: of.clone(), constant }).filter(fits)
        });
        multiples.chain(shifted).next()
    }

    /// A graph at other sizes, from the graphs of the samples.
    pub(crate) fn graph_at(&self, graphs: &[&Value], sizes: &[i64]) -> Option<Value> {
        let first = *graphs.first()?;
        if graphs.iter().all(|value| *value == first) {
            return Some(first.clone());
        }
        match first {
            Value::Number(number) if number.is_i64() => {
                let values: Option<Vec<i64>> = graphs.iter().map(|value| value.as_i64()).collect();
                self.rule(&values?)?.at(sizes).map(Value::from)
            }
            Value::Array(list) => {
                let lists: Vec<&Vec<Value>> =
                    graphs.iter().map(|value| value.as_array()).collect::<Option<_>>()?;
                if lists.iter().any(|other| other.len() != list.len()) {
                    return None;
                }
                let item = |i: usize| {
                    let items: Option<Vec<&Value>> = lists.iter().map(|list| list.get(i)).collect();
                    self.graph_at(&items?, sizes)
                };
                (0..list.len()).map(item).collect::<Option<Vec<Value>>>().map(Value::Array)
            }
            Value::Object(map) => {
                let same = |other: &&Value| {
                    other.as_object().is_some_and(|other| other.len() == map.len())
                };
                if !graphs.iter().all(same) {
                    return None;
                }
                let entry = |key: &String| {
                    let values: Option<Vec<&Value>> =
                        graphs.iter().map(|value| value.get(key)).collect();
                    Some((key.clone(), self.graph_at(&values?, sizes)?))
                };
                let entries: Option<serde_json::Map<String, Value>> =
                    map.keys().map(entry).collect();
                entries.map(Value::Object)
            }
            _ => None,
        }
    }

    /// A line of Python for all sizes, from the lines of the samples: its numbers by their rules.
    pub(crate) fn line(&self, lines: &[&str], names: &[String]) -> Option<String> {
        let split: Vec<Vec<Piece<'_>>> = lines.iter().map(|line| pieces(line)).collect();
        let first = split.first()?;
        if split.iter().any(|other| other.len() != first.len()) {
            return None;
        }
        let mut out = String::new();
        for (i, piece) in first.iter().enumerate() {
            match piece {
                Piece::Text(text) => {
                    let same = |other: &Vec<Piece<'_>>| other.get(i) == Some(piece);
                    if !split.iter().all(same) {
                        return None;
                    }
                    out.push_str(text);
                }
                Piece::Number(_) => {
                    let number = |other: &Vec<Piece<'_>>| match other.get(i) {
                        Some(Piece::Number(number)) => Some(*number),
                        _ => None,
                    };
                    let values: Option<Vec<i64>> = split.iter().map(number).collect();
                    out.push_str(&self.rule(&values?)?.shown(names));
                }
            }
        }
        Some(out)
    }
}

impl Rule {
    /// As Python, in which a constant is a plain number.
    fn shown(&self, names: &[String]) -> String {
        if self.of.is_empty() { self.constant.to_string() } else { self.python(names) }
    }
}

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'l> {
    Text(&'l str),
    /// A whole number that is no part of a name.
    Number(i64),
}

fn pieces(line: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let (mut start, mut at) = (0, 0);
    let bytes = line.as_bytes();
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'.';
    while at < bytes.len() {
        let end = at + bytes[at..].iter().take_while(|b| is_word(b)).count();
        let word = line.get(at..end).unwrap_or_default();
        let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        if let Some(number) = word.parse::<i64>().ok().filter(|_| digits) {
            out.push(Piece::Text(line.get(start..at).unwrap_or_default()));
            out.push(Piece::Number(number));
            start = end;
        }
        at = end.max(at + 1);
    }
    out.push(Piece::Text(line.get(start..).unwrap_or_default()));
    out
}

/// The shape of each input that is a tensor.
fn shapes(graph: &Value) -> Option<Vec<Option<Vec<i64>>>> {
    let inputs = graph.get("inputs")?.as_array()?;
    let shape = |input: &Value| match input.get("tensor") {
        None | Some(Value::Null) => Some(None),
        Some(tensor) => {
            let dims = tensor.get("shape")?.as_array()?;
            dims.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>().map(Some)
        }
    };
    inputs.iter().map(shape).collect()
}

/// The sizes that tell these graphs apart, and their values in each. `None` if the inputs are not
/// alike, or differ in too many ways.
pub(crate) fn of_graphs(graphs: &[&Value]) -> Option<(Vec<Dim>, Samples)> {
    let shapes: Vec<Vec<Option<Vec<i64>>>> =
        graphs.iter().map(|graph| shapes(graph)).collect::<Option<_>>()?;
    let first = shapes.first()?;
    let mut varying: Vec<(Dim, Vec<i64>)> = Vec::new();
    for (input, shape) in first.iter().enumerate() {
        let Some(shape) = shape else { continue };
        for dim in 0..shape.len() {
            let value = |of: &Vec<Option<Vec<i64>>>| {
                let same = of.len() == first.len();
                let other = of.get(input)?.as_ref().filter(|o| same && o.len() == shape.len())?;
                other.get(dim).copied()
            };
            let values: Vec<i64> = shapes.iter().map(value).collect::<Option<_>>()?;
            if values.iter().any(|value| *value != shape[dim]) {
                varying.push((Dim { input, dim }, values));
            }
        }
    }
    // Others are multiples of the smallest.
    varying.sort_by_key(|(_, values)| values.first().copied());
    let (mut dims, mut samples) = (Vec::new(), Samples(vec![vec![]; graphs.len()]));
    for (dim, values) in varying {
        if samples.rule(&values).is_some() {
            continue;
        }
        if dims.len() == MOST {
            return None;
        }
        dims.push(dim);
        for (sizes, value) in samples.0.iter_mut().zip(values) {
            sizes.push(value);
        }
    }
    Some((dims, samples))
}

impl Samples {
    /// The sizes of a sample.
    pub(crate) fn of(&self, sample: usize) -> &[i64] {
        self.0.get(sample).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names() -> Vec<String> {
        vec!["rows".to_owned(), "columns".to_owned()]
    }

    #[test]
    fn numbers_follow_sizes_in_text() {
        let samples = Samples::new(vec![vec![3, 8], vec![5, 8], vec![7, 10]]);
        let lines =
            ["f_2(x, (3, 64), 192 * 2)", "f_2(x, (5, 64), 320 * 2)", "f_2(x, (7, 64), 448 * 2)"];
        let line = samples.line(&lines, &names()).unwrap();
        assert_eq!(line, "f_2(x, (rows, 64), 64 * rows * 2)");
        let products = ["24 x1 9", "40 x1 9", "70 x1 11"];
        let line = samples.line(&products, &names()).unwrap();
        assert_eq!(line, "rows * columns x1 (columns + 1)");
        assert_eq!(samples.line(&["1", "2", "4"], &names()), None, "no rule");
        assert_eq!(samples.line(&["a", "b", "a"], &names()), None, "other text");
    }

    #[test]
    fn graph_is_made_for_new_sizes() {
        let graph = |n: i64| {
            json!({
                "inputs": [{"name": "x", "tensor": {"shape": [n, 4], "stride": [4, 1]}}, {"name": "y", "scalar": 1.5}],
                "nodes": [{"out": [2 * n, 7, "float32"], "of": n * 4}],
            })
        };
        let all = [graph(3), graph(5), graph(11)];
        let all: Vec<&Value> = all.iter().collect();
        let (dims, samples) = of_graphs(&all).unwrap();
        assert_eq!(dims, [Dim { input: 0, dim: 0 }]);
        assert_eq!(samples.graph_at(&all, &[64]), Some(graph(64)));
        let mut odd = graph(11);
        odd["nodes"][0]["out"][1] = json!(8);
        assert_eq!(samples.graph_at(&[all[0], all[1], &odd], &[64]), None);
    }
}
