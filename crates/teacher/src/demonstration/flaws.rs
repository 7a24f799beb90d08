//! Deliberate mistakes in correct kernels.

use crate::program::Files;

/// Subtracts one from bounds, so that the last iteration, block or element is skipped. Each bound
/// is changed at most once.
pub(super) fn break_bounds(files: &mut Files, numbers: &[u64]) {
    let mut places: Vec<(String, usize, usize)> = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| is_kernel(path)) {
        places.extend(bounds(text).into_iter().map(|(from, to)| (path.clone(), from, to)));
    }
    let mut broken = Vec::new();
    for number in numbers {
        if !places.is_empty() {
            broken.push(places.remove((number % places.len() as u64) as usize));
        }
    }
    // The last first: numbers may become shorter.
    broken.sort_by_key(|(_, from, _)| std::cmp::Reverse(*from));
    for (path, from, to) in broken {
        if let Some(text) = files.get_mut(&path)
            && let Ok(bound) = text[from..to].parse::<u64>()
        {
            text.replace_range(from..to, &(bound - 1).to_string());
        }
    }
}

/// Declares a value under the name of another value of the same kernel: one name is declared twice,
/// and one is undefined. Models trained from scratch make this mistake most often.
pub(super) fn misname(files: &mut Files, number: u64) {
    let kernels = files.iter().filter(|(path, _)| is_kernel(path));
    let names: Vec<_> = kernels.map(|(path, text)| (path.clone(), declared(text))).collect();
    let Some((path, places)) = names.into_iter().max_by_key(|(_, places)| places.len()) else {
        return;
    };
    let count = places.len() as u64;
    if count < 2 {
        return;
    }
    let (from, to) = places[(number % count) as usize];
    let (other_from, other_to) = places[((number + 1) % count) as usize];
    if let Some(text) = files.get_mut(&path) {
        let other = text[other_from..other_to].to_owned();
        text.replace_range(from..to, &other);
    }
}

/// Positions of float declarations in the block that declares the most of them: identical names in
/// other blocks are different variables.
fn declared(text: &str) -> Vec<(usize, usize)> {
    const BEFORE: &str = "const float ";
    let mut blocks: Vec<Vec<(usize, usize)>> = vec![vec![]];
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let inside = line.trim_start();
        match inside.strip_prefix(BEFORE).and_then(|rest| rest.split_once(" = ")) {
            Some((name, _)) if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                let from = at + line.len() - inside.len() + BEFORE.len();
                blocks
                    .last_mut()
                    .into_iter()
                    .for_each(|block| block.push((from, from + name.len())));
            }
            _ => blocks.push(vec![]),
        }
        at += line.len();
    }
    blocks.into_iter().max_by_key(Vec::len).unwrap_or_default()
}

pub(super) fn is_kernel(path: &str) -> bool {
    path.strip_suffix(".cu").is_some()
}

/// Positions of numbers of at least two that bound a loop (`< 512;`), elements (`>= 512)`) or
/// blocks (`<<<512,`).
fn bounds(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for before in ["< ", ">= ", "<<<"] {
        for (at, _) in text.match_indices(before) {
            let from = at + before.len();
            let digits = text[from..].bytes().take_while(u8::is_ascii_digit).count();
            let after = text[from + digits..].bytes().next();
            let is_bound = matches!(after, Some(b';' | b')' | b','))
                && !text[..at].ends_with('<')
                && text[from..from + digits].parse::<u64>().is_ok_and(|bound| bound >= 2);
            if is_bound {
                found.push((from, from + digits));
            }
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_breaks_a_different_bound() {
        let text = "for (i = 0; i < 100; ++i) if (j >= 10) f<<<1000, 32>>>(x);";
        let broken = |numbers: &[u64]| {
            let mut files = Files::from([("kernels/a.cu".to_owned(), text.to_owned())]);
            break_bounds(&mut files, numbers);
            files.remove("kernels/a.cu").unwrap()
        };
        assert_eq!(broken(&[]), text);
        assert_eq!(broken(&[4]), text.replace("10)", "9)"));
        assert_eq!(broken(&[4, 4]), text.replace("10)", "9)").replace("100;", "99;"));
        let all = text.replace("10)", "9)").replace("100;", "99;").replace("1000,", "999,");
        assert_eq!(broken(&[4, 4, 4]), all);
        assert_eq!(broken(&[4, 4, 4, 4]), all);
    }

    #[test]
    fn names_are_found_within_one_block() {
        let text = "const float a = 1;\n{\n  const float b = 2;\n  const float c_1 = b;\n}\n  const float d;\n";
        let found: Vec<&str> = declared(text).iter().map(|(from, to)| &text[*from..*to]).collect();
        assert_eq!(found, ["b", "c_1"]);
    }

    #[test]
    fn only_loop_bounds_are_found() {
        let text =
            "f<<<128, 32>>>(x); for (i = 0; i < 512; ++i) if (j >= 9) y = i << 3; a < 1; b < n;";
        let found: Vec<&str> = bounds(text).iter().map(|(from, to)| &text[*from..*to]).collect();
        assert_eq!(found, ["128", "512", "9"]);
    }
}
