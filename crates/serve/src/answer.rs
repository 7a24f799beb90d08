//! The candidate's files in the response of a language model.

use std::collections::BTreeMap;

const MODEL: &str = "model_new.py";

/// The code blocks of a Markdown text as a candidate's files. A block's name is in its fence
/// (```` ```cuda kernels/gelu.cu ````), in a comment in its first line, or in the line before it. Without a name,
/// Python with a class `ModelNew` is `model_new.py`, and CUDA and C++ are `kernels/answer1.cu` and so on. Of
/// several blocks with one name the last one counts. Other blocks are ignored.
pub(crate) fn files(text: &str) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut unnamed = 0;
    for block in blocks(text) {
        let language = block.info.split_whitespace().next().unwrap_or_default().to_lowercase();
        let first = block.code.lines().next().unwrap_or_default();
        let told = block.info.split_whitespace().find_map(name);
        let told = told.or_else(|| comment(first).and_then(name)).or_else(|| name(block.before));
        let is_python = matches!(language.as_str(), "python" | "py" | "python3");
        let name = match told {
            Some(name) => name,
            None if block.code.contains("class ModelNew") && (is_python || language.is_empty()) => {
                MODEL.to_owned()
            }
            None if matches!(language.as_str(), "cuda" | "cu" | "c++" | "cpp" | "c") => {
                unnamed += 1;
                let cuda = language.starts_with("cu") || block.code.contains("__global__");
                format!("kernels/answer{unnamed}.{}", if cuda { "cu" } else { "cpp" })
            }
            None => continue,
        };
        files.insert(name, block.code);
    }
    files
}

struct Block<'t> {
    /// What stands behind the fence.
    info: &'t str,
    /// The last line before it that says anything.
    before: &'t str,
    code: String,
}

/// The fenced blocks; one that is never closed ends with the text.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut before) = (Vec::new(), "");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let ticks = trimmed.len() - trimmed.trim_start_matches('`').len();
        let info = trimmed[ticks..].trim();
        if ticks < 3 || info.contains('`') {
            if !line.trim().is_empty() {
                before = line;
            }
            continue;
        }
        let mut code = String::new();
        for line in lines.by_ref() {
            let end = line.trim();
            if end.len() >= ticks && end.bytes().all(|byte| byte == b'`') {
                break;
            }
            code.push_str(line);
            code.push('\n');
        }
        blocks.push(Block { info, before, code });
        before = "";
    }
    blocks
}

/// What a comment says, if a line is one.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim();
    let text = line.strip_prefix("//").or_else(|| line.strip_prefix('#'));
    text.or_else(|| line.strip_prefix("/*")).map(|text| text.trim_end_matches("*/").trim())
}

/// Endings of headers that a candidate may bring.
const HEADERS: [&str; 13] = [
    ".cuh", ".h", ".hpp", ".hh", ".hxx", ".inc", ".inl", ".def", ".ipp", ".tpp", ".txx", ".icc",
    ".tcc",
];

/// The file that a word or a line names.
fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix("file=").or_else(|| text.strip_prefix("path=")).unwrap_or(text);
    let around = |c: char| matches!(c, '*' | '`' | '"' | '\'' | ':' | '#' | ' ' | '(' | ')');
    let path = text.trim_matches(around).trim_start_matches("./");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if path.is_empty() || !path.chars().all(plain) {
        return None;
    }
    let ends = |ends: &[&str]| ends.iter().any(|end| path.len() > end.len() && path.ends_with(end));
    match path {
        MODEL => Some(MODEL.to_owned()),
        _ if !ends(&[".cu", ".cpp"]) && !ends(&HEADERS) => None,
        _ if path.starts_with("kernels/") => Some(path.to_owned()),
        _ if !path.contains('/') => Some(format!("kernels/{path}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        files(text).into_keys().collect()
    }

    #[test]
    fn code_blocks_become_files_with_the_given_names() {
        let text = "\
First a draft:
```python
class ModelNew: draft
```
**kernels/gelu.cu**

```cuda
__global__ void k() {}
```
```cpp kernels/bind.cpp
// bound
```
```c++
// kernels/common.cuh
int x;
```
The model, `model_new.py`, is:
```python
# model_new.py
class ModelNew: final
```
```text
kernels/not.cu
```
";
        let found = files(text);
        let expected =
            ["kernels/bind.cpp", "kernels/common.cuh", "kernels/gelu.cu", "model_new.py"];
        assert_eq!(found.keys().collect::<Vec<_>>(), expected);
        assert_eq!(
            found["model_new.py"], "# model_new.py\nclass ModelNew: final\n",
            "the last one counts"
        );
        assert_eq!(found["kernels/gelu.cu"], "__global__ void k() {}\n");
    }

    #[test]
    fn unnamed_blocks_are_named_by_language() {
        let text = "```python\nimport x\nclass ModelNew: a\n```\n```cuda\na\n```\n```cpp\n__global__\n```\n```cpp\nb\n```";
        let expected =
            ["kernels/answer1.cu", "kernels/answer2.cu", "kernels/answer3.cpp", "model_new.py"];
        assert_eq!(names(text), expected);
        assert_eq!(
            names("```python\nprint(1)\n```\n```\nls\n```\n```bash\nx\n```"),
            Vec::<String>::new()
        );
        assert_eq!(names("no code at all"), Vec::<String>::new());
        // Cut short, fences within fences, names that lead elsewhere.
        assert_eq!(names("```python\nclass ModelNew"), ["model_new.py"]);
        let nested = "````python\nclass ModelNew:\n```\nx\n```\n````\n";
        assert_eq!(files(nested)["model_new.py"], "class ModelNew:\n```\nx\n```\n");
        assert_eq!(names("```cuda ../../x.cu\na\n```"), ["kernels/answer1.cu"]);
        assert_eq!(names("```cuda /etc/x.cu\na\n```"), ["kernels/answer1.cu"]);
    }

    proptest! {
        /// Whatever a model says, what is found are names that a candidate may have, or none.
        #[test]
        fn any_text_gives_only_valid_file_names(text in "(```[a-z+ ./_]{0,20}\n|[a-z#/*.` _]{0,12}\n|class ModelNew\n|__global__\n){0,20}") {
            for name in files(&text).into_keys() {
                prop_assert!(name == MODEL || name.starts_with("kernels/"), "{}", name);
            }
        }
    }
}
