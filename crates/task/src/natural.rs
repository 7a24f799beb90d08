//! The order in which people number files.

use std::cmp::Ordering;

/// Compares with runs of digits taken as numbers: `2_x.py` before `10_x.py`. A total order: equal
/// only for equal texts (`1` and `01` differ, the shorter first).
pub fn natural_cmp(a: &str, b: &str) -> Ordering {
    let mut left = a.as_bytes();
    let mut right = b.as_bytes();
    loop {
        let (Some(&x), Some(&y)) = (left.first(), right.first()) else {
            // One is a prefix of the other, up to leading zeros, which `cmp` then tells apart.
            return left.len().cmp(&right.len()).then_with(|| a.len().cmp(&b.len())).then(a.cmp(b));
        };
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let number = take_number(&mut left);
            let other = take_number(&mut right);
            number.len().cmp(&other.len()).then_with(|| number.cmp(other))
        } else {
            left = &left[1..];
            right = &right[1..];
            x.cmp(&y)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Takes the leading digits off `text` and returns them without leading zeros.
fn take_number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let zeros = digits.iter().take_while(|&&c| c == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_in_names_sort_numerically() {
        let mut names = ["10_x.py", "2_x.py", "1_b.py", "1_a.py", "level10", "level2", "02_x.py"];
        names.sort_by(|a, b| natural_cmp(a, b));
        assert_eq!(
            names,
            ["1_a.py", "1_b.py", "2_x.py", "02_x.py", "10_x.py", "level2", "level10"]
        );
    }

    proptest! {
        #[test]
        fn order_of_numbered_names_equals_numeric_order(a in 0u64.., b in 0u64..) {
            prop_assert_eq!(natural_cmp(&format!("k{a}.py"), &format!("k{b}.py")), a.cmp(&b));
        }

        #[test]
        fn natural_order_is_total(a in "[0-2a-b_]{0,6}", b in "[0-2a-b_]{0,6}", c in "[0-2a-b_]{0,6}") {
            prop_assert_eq!(natural_cmp(&a, &b), natural_cmp(&b, &a).reverse());
            prop_assert_eq!(natural_cmp(&a, &b) == Ordering::Equal, a == b);
            if natural_cmp(&a, &b).is_le() && natural_cmp(&b, &c).is_le() {
                prop_assert!(natural_cmp(&a, &c).is_le());
            }
        }
    }
}
