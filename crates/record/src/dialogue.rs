//! Fixed texts of a conversation: the first user message, and placeholders. The remote policy and the exports that
//! rebuild a conversation from a record share them, so that exported conversations equal the sampled ones.
//!
//! A record does not contain these texts: changing one changes the export of older records.

/// User message after an answer that was truncated before a tool call was complete.
pub const CUT: &str = "Your answer was cut at the most tokens allowed for one message, before any tool \
    call was complete. Say less at once, and go on with a tool call.";

/// User message after any other answer without tool calls that does not end the episode.
pub const GO_ON: &str = "Go on.";

/// Placeholder for the result of a call that was not run.
pub const NOT_RUN: &str = "This call was not run.";

/// The first user message: the task and its reference.
pub fn first_user_message(task: &str, reference: &str) -> String {
    // More backticks than stand together anywhere in the source.
    let longest = reference.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let workloads = if reference.lines().any(|line| line.starts_with("def get_workloads(")) {
        "`get_workloads` lists argument sets for `get_inputs`: the candidate must be correct on each, and the \
         geometric mean of its speed-ups counts. "
    } else {
        ""
    };
    format!(
        "The task is `{task}`. Its reference, `model.py`:\n\n{fence}python\n{}\n{fence}\n\n{workloads}\
         Write `model_new.py` and kernels under `kernels/` as your instructions say: verify them, \
         profile them, and make them faster. Work with the tools. When you are done, answer without \
         a tool call; what then lies in the workspace is measured.",
        reference.trim_end(),
    )
}

/// Placeholder for a result that was omitted to free context.
pub fn left_out(text: &str) -> String {
    let (bytes, lines) = (text.len(), text.lines().count());
    format!("[left out to make room: {bytes} bytes in {lines} lines]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_cannot_close_its_own_code_fence() {
        let plain = first_user_message("relu", "x = 1\n");
        assert!(plain.starts_with("The task is `relu`."), "{plain}");
        assert!(plain.contains("\n```python\nx = 1\n```\n\nWrite"), "{plain}");
        let several = first_user_message("relu", "def get_workloads():\n    return [[1], [2]]\n");
        assert!(several.contains("correct on each"), "{several}");
        let fenced = first_user_message("relu", "\"\"\"\n```\nhere\n````\n\"\"\"");
        assert!(fenced.contains("`````python") && fenced.contains("\n`````\n\nWrite"), "{fenced}");
    }

    #[test]
    fn placeholder_gives_the_omitted_size() {
        assert_eq!(left_out("a\nb\n"), "[left out to make room: 4 bytes in 2 lines]");
    }
}
