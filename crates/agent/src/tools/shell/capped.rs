//! Captures output of any length in bounded memory: its beginning and its end.

use std::collections::VecDeque;

/// Maximum bytes of one command's output that a policy sees.
pub const MAX_OUTPUT_BYTES: usize = 30_000;

/// The first and the last half of the allowed bytes, and the number of bytes dropped between them.
#[derive(Debug)]
pub(crate) struct Capped {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out_bytes: u64,
    left_out_lines: u64,
}

impl Capped {
    pub(crate) fn new(limit: usize) -> Self {
        let (head, tail) = (Vec::new(), VecDeque::new());
        Self { half: limit / 2, head, tail, left_out_bytes: 0, left_out_lines: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(first);
        // Only the last half of a long piece can survive.
        let (skipped, kept) = rest.split_at(rest.len().saturating_sub(self.half));
        let excess = (self.tail.len() + kept.len()).saturating_sub(self.half).min(self.tail.len());
        let pushed_out = self.tail.drain(..excess);
        let lines = pushed_out.filter(|byte| *byte == b'\n').count() + newlines(skipped);
        self.left_out_lines += lines as u64;
        self.left_out_bytes += (excess + skipped.len()) as u64;
        self.tail.extend(kept);
    }

    /// Takes the captured text and leaves the buffer empty.
    pub(crate) fn take(&mut self) -> String {
        let taken = std::mem::replace(self, Self::new(2 * self.half));
        let (head, tail) = (taken.head, Vec::from(taken.tail));
        if taken.left_out_bytes == 0 {
            return String::from_utf8_lossy(&[head, tail].concat()).into_owned();
        }
        // Cut at line ends where that loses little.
        let end = head.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let end = if end < head.len() - head.len() / 4 { head.len() } else { end };
        let start = tail.iter().position(|b| *b == b'\n').map_or(tail.len(), |at| at + 1);
        let start = if start > tail.len() / 4 { 0 } else { start };
        let bytes = taken.left_out_bytes + (head.len() - end + start) as u64;
        let lines =
            taken.left_out_lines + (newlines(&head[end..]) + newlines(&tail[..start])) as u64;
        let line_end = if head[..end].ends_with(b"\n") { "" } else { "\n" };
        format!(
            "{}{line_end}[... {bytes} bytes in {lines} lines left out ...]\n{}",
            String::from_utf8_lossy(&head[..end]),
            String::from_utf8_lossy(&tail[start..])
        )
    }
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').count() - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn oversized_output_loses_its_middle_and_counts_it() {
        let mut capped = Capped::new(60);
        for i in 0..1000 {
            capped.push(format!("line {i}\n").as_bytes());
        }
        insta::assert_snapshot!(capped.take(), @"
        line 0
        line 1
        line 2
        line 3
        [... 8835 bytes in 993 lines left out ...]
        line 997
        line 998
        line 999
        ");
        assert_eq!(capped.take(), "");
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_dropped_bytes_are_counted(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..40),
            limit in 2_usize..100,
        ) {
            let mut capped = Capped::new(limit);
            let mut total = 0;
            for piece in &pieces {
                capped.push(piece);
                total += piece.len() as u64;
                prop_assert!(capped.head.len() + capped.tail.len() <= limit);
            }
            let kept = (capped.head.len() + capped.tail.len()) as u64;
            prop_assert_eq!(kept + capped.left_out_bytes, total);
            let all: Vec<u8> = pieces.concat();
            if total <= limit as u64 / 2 * 2 && capped.left_out_bytes == 0 {
                prop_assert_eq!(capped.take(), String::from_utf8_lossy(&all).into_owned());
            }
        }
    }
}
