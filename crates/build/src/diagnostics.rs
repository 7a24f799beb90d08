//! Parses compiler output into diagnostics.
//!
//! Four tools use four formats: g++ `file:line:column: error: text`, nvcc's front end `file(line):
//! error #20: text` with a caret line below, ptxas and nvlink `ptxas error : text`, and linkers
//! sentences. Recognised messages become [`Diagnostic`]s with an excerpt of the candidate's own
//! source; the others remain in the raw tail.

use std::collections::BTreeMap;
use std::fmt::Write;

use warpwright_record::verdict::{Diagnostic, Severity};

use crate::demangle::kernel_name;

/// Maximum diagnostics kept per build, errors first.
pub(crate) const MAX_DIAGNOSTICS: usize = 20;
const MAX_MESSAGE: usize = 600;
const MAX_EXCERPT_LINE: usize = 160;
/// Bytes of raw output kept with a failure.
pub(crate) const MAX_TAIL: usize = 4096;

/// Removes machine paths from text for readers on other machines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrub {
    /// Prefix and replacement, longest prefix first.
    prefixes: Vec<(String, String)>,
}

impl Scrub {
    /// Replaces each path with its label; other paths lose their folders.
    pub(crate) fn new(mut prefixes: Vec<(String, String)>) -> Self {
        prefixes.retain(|(prefix, _)| prefix.len() > 1);
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self { prefixes }
    }

    /// `text` without machine paths.
    pub(crate) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (prefix, label) in &self.prefixes {
            if text.contains(prefix.as_str()) {
                text = text.replace(&format!("{prefix}/"), label).replace(prefix.as_str(), label);
            }
        }
        drop_folders(&text)
    }
}

/// `/a/b/c.h` becomes `.../c.h`, wherever a path can begin. Paths of the system's own headers stay,
/// because they reveal nothing about the machine.
fn drop_folders(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(at) = rest.find('/') {
        let (head, tail) = rest.split_at(at);
        before = head.chars().next_back().unwrap_or(before);
        out += head;
        let in_path = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
        let end = tail.find(|c| !in_path(c)).unwrap_or(tail.len());
        let path = &tail[..end];
        let begins = !(before.is_alphanumeric() || ".>)_".contains(before));
        let deep = path.matches('/').count() > 1 && !path.starts_with("//");
        match path.rsplit_once('/') {
            Some((_, base)) if begins && deep && !path.starts_with("/usr/") => {
                out += ".../";
                out += base;
            }
            _ => out += path,
        }
        before = path.chars().next_back().unwrap_or(before);
        rest = &tail[end..];
    }
    out + rest
}

/// All diagnostics in `output`, in order. `sources` are the candidate's files by their scrubbed
/// names; excerpts come from them.
pub(crate) fn parse(
    output: &str,
    sources: &BTreeMap<String, String>,
    scrub: &Scrub,
) -> Vec<Diagnostic> {
    let output = scrub.clean(output);
    let lines: Vec<&str> = output.lines().collect();
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut object = None;
    for (index, line) in lines.iter().enumerate() {
        if let Some(name) = object_in_linker_line(line) {
            object = Some(name);
        }
        let parsed = gnu_line(line)
            .or_else(|| cuda_front_end_line(line, &lines[index + 1..], sources))
            .or_else(|| device_tool_line(line))
            .or_else(|| linker_line(line, object.as_deref(), sources));
        let Some(mut diagnostic) = parsed else { continue };
        diagnostic.message = shorten(&diagnostic.message, MAX_MESSAGE);
        if diagnostic.excerpt.is_empty() {
            diagnostic.excerpt = excerpt(&diagnostic, sources);
        }
        if !found.contains(&diagnostic) {
            found.push(diagnostic);
        }
    }
    found
}

/// Errors first, then warnings, then notes, each in order; at most [`MAX_DIAGNOSTICS`].
pub(crate) fn ranked(mut all: Vec<Diagnostic>) -> Vec<Diagnostic> {
    all.sort_by_key(|d| match d.severity {
        Severity::Error => 0,
        Severity::Warning => 1,
        Severity::Note => 2,
    });
    all.truncate(MAX_DIAGNOSTICS);
    all
}

/// A diagnostic that the builder itself creates.
pub(crate) fn error(file: Option<&str>, message: String) -> Diagnostic {
    plain(file, None, None, Severity::Error, message)
}

/// The last [`MAX_TAIL`] bytes of `output` from a line's beginning, scrubbed.
pub(crate) fn tail(output: &str, scrub: &Scrub) -> String {
    let text = scrub.clean(output.trim_end());
    if text.len() <= MAX_TAIL {
        return text;
    }
    let mut at = text.len() - MAX_TAIL;
    while !text.is_char_boundary(at) {
        at += 1;
    }
    let at = text[at..].find('\n').map_or(at, |line| at + line + 1);
    format!("[...]\n{}", &text[at..])
}

/// Source lines around a location with numbers, and a caret under the column.
pub(crate) fn excerpt(at: &Diagnostic, sources: &BTreeMap<String, String>) -> String {
    let (Some(file), Some(line)) = (&at.file, at.line) else { return String::new() };
    let Some(text) = sources.get(file) else { return String::new() };
    let mut out = String::new();
    for (index, source) in text.lines().enumerate() {
        let number = index as u32 + 1;
        if number + 1 < line || number > line + 1 {
            continue;
        }
        let shown = shorten(&source.replace('\t', " "), MAX_EXCERPT_LINE);
        let _ = writeln!(out, "{number:>5} | {shown}");
        if number == line
            && let Some(column) = at.column
            && (1..=MAX_EXCERPT_LINE as u32).contains(&column)
        {
            let _ = writeln!(out, "      | {}^", " ".repeat(column as usize - 1));
        }
    }
    out
}

fn plain(
    file: Option<&str>,
    line: Option<u32>,
    column: Option<u32>,
    severity: Severity,
    message: String,
) -> Diagnostic {
    let file = file.map(str::to_owned);
    Diagnostic { file, line, column, severity, message, excerpt: String::new() }
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most).chain("...".chars()).collect()
}

fn severity(word: &str) -> Option<Severity> {
    match word.trim() {
        "error" | "fatal error" | "catastrophic error" | "fatal" => Some(Severity::Error),
        "warning" => Some(Severity::Warning),
        "note" | "remark" => Some(Severity::Note),
        _ => None,
    }
}

/// `file:line:column: error: text`, from g++ and clang.
fn gnu_line(line: &str) -> Option<Diagnostic> {
    for word in ["fatal error", "error", "warning", "note"] {
        let marker = format!(": {word}: ");
        let Some(at) = line.find(&marker) else { continue };
        let message = line[at + marker.len()..].to_owned();
        let mut place = line[..at].rsplitn(3, ':');
        let last = place.next()?.parse::<u32>().ok()?;
        let middle = place.next()?;
        let (file, number, column) = match (middle.parse::<u32>(), place.next()) {
            (Ok(number), Some(file)) => (file, number, Some(last)),
            _ => (line[..at].rsplit_once(':')?.0, last, None),
        };
        return Some(plain(Some(file), Some(number), column, severity(word)?, message));
    }
    None
}

/// `file(line): error #20-D: text`, from cudafe++ and cicc. The column is the caret's position two
/// lines below, under the source line without its indentation.
fn cuda_front_end_line(
    line: &str,
    below: &[&str],
    sources: &BTreeMap<String, String>,
) -> Option<Diagnostic> {
    let (place, rest) = line.split_once("): ")?;
    let (file, number) = place.rsplit_once('(')?;
    let number: u32 = number.parse().ok()?;
    let (head, message) = rest.split_once(": ")?;
    let word = head.split(" #").next()?;
    let severity = severity(word)?;
    let source = sources.get(file).and_then(|text| text.lines().nth(number as usize - 1));
    let caret = below.iter().take(3).find(|l| l.trim() == "^").map(|l| l.len() - 1);
    let column = match (source, caret) {
        (Some(source), Some(caret)) => {
            let indent = source.len() - source.trim_start().len();
            Some((caret.saturating_sub(2) + indent) as u32 + 1)
        }
        _ => None,
    };
    Some(plain(Some(file), Some(number), column, severity, message.to_owned()))
}

/// `ptxas error   : text`, `ptxas a.ptx, line 46; error   : text`, `nvlink error   : text`,
/// `nvcc fatal   : text`.
fn device_tool_line(line: &str) -> Option<Diagnostic> {
    let tool = ["ptxas", "nvlink", "nvcc", "cicc"].into_iter().find(|t| line.starts_with(t))?;
    let (head, message) = line.split_once(" : ")?;
    let word = head[tool.len()..].rsplit(';').next()?;
    let place = head[tool.len()..].split_once(", line ").map_or(String::new(), |(_, rest)| {
        format!(" (line {} of the PTX)", rest.split(';').next().unwrap_or_default())
    });
    let message = format!("{tool}: {}{place}", demangled(message.trim()));
    Some(plain(None, None, None, severity(word)?, message))
}

/// Demangles the kernel names in quotes.
fn demangled(message: &str) -> String {
    let readable = |(index, part): (usize, &str)| {
        if index % 2 == 1 { kernel_name(part) } else { part.to_owned() }
    };
    message.split('\'').enumerate().map(readable).collect::<Vec<_>>().join("'")
}

/// The object named before `: in function`, as the source it came from.
fn object_in_linker_line(line: &str) -> Option<String> {
    let (head, _) = line.split_once(": in function ")?;
    let object = head.rsplit(": ").next()?.rsplit('/').next()?;
    Some(source_of_object(object))
}

/// Name of the object file of a source. Slashes become `@`, so that the source can be recovered
/// from linker messages.
pub(crate) fn object_of_source(source: &str) -> String {
    format!("{}.o", source.replace('/', "@"))
}

fn source_of_object(object: &str) -> String {
    object.strip_suffix(".o").unwrap_or(object).replace('@', "/")
}

/// Undefined and multiply defined symbols, in the formats of ld, gold, mold and lld.
fn linker_line(
    line: &str,
    object: Option<&str>,
    sources: &BTreeMap<String, String>,
) -> Option<Diagnostic> {
    let (symbol, what) = if let Some((_, rest)) = line.split_once("undefined reference to ") {
        (rest, "undefined symbol")
    } else if let Some((_, rest)) = line.split_once("undefined symbol: ") {
        (rest, "undefined symbol")
    } else if let Some((_, rest)) = line.split_once("multiple definition of ") {
        (rest, "symbol defined twice")
    } else if let Some((_, rest)) = line.split_once("duplicate symbol: ") {
        (rest, "symbol defined twice")
    } else {
        return None;
    };
    let symbol = symbol.split("; ").next()?.trim_matches(['`', '\'', '"', ' ']);
    let file = object.filter(|o| sources.contains_key(*o));
    let name = symbol.split('(').next()?.rsplit("::").next()?;
    let mut found = plain(file, None, None, Severity::Error, format!("{what}: {symbol}"));
    // The linker knows no lines; the first mention of the name is where a reader would look.
    let mention = file.and_then(|f| {
        let lines = sources[f].lines().enumerate();
        lines.filter_map(|(index, text)| mention(text, name).map(|at| (index, at))).last()
    });
    if let Some((index, at)) = mention {
        found.line = Some(index as u32 + 1);
        found.column = Some(at as u32 + 1);
    }
    Some(found)
}

/// Position of `name` as a whole word.
fn mention(text: &str, name: &str) -> Option<usize> {
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(name).map(|(at, _)| at).find(|at| {
        !word(text[..*at].chars().next_back()) && !word(text[at + name.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> BTreeMap<String, String> {
        let text =
            "int a;\n    float x = launch(1;\nint b;\nint helper(int);\nint c = helper(1);\n";
        BTreeMap::from([("kernels/a.cu".to_owned(), text.to_owned())])
    }

    fn scrub() -> Scrub {
        Scrub::new(vec![
            ("/tmp/scratch.1/src".to_owned(), String::new()),
            ("/opt/venv/torch/include".to_owned(), "<torch>/".to_owned()),
        ])
    }

    #[test]
    fn gnu_diagnostics_are_parsed() {
        let output = "/tmp/scratch.1/src/kernels/a.cu:2:21: error: expected ')'\n    2 | x\n\
             /opt/venv/torch/include/c10/util/X.h:7:3: note: declared here\n\
             In file included from /home/someone/x/y.h:3:\n";
        let found = parse(output, &sources(), &scrub());
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].file.as_deref(), Some("kernels/a.cu"));
        assert_eq!((found[0].line, found[0].column), (Some(2), Some(21)));
        insta::assert_snapshot!(found[0].excerpt, @r"
            1 | int a;
            2 |     float x = launch(1;
              |                     ^
            3 | int b;
        ");
        assert_eq!(found[1].file.as_deref(), Some("<torch>/c10/util/X.h"));
        assert_eq!(found[1].severity, Severity::Note);
    }

    #[test]
    fn nvcc_diagnostics_take_the_column_from_the_caret() {
        let output = "kernels/a.cu(2): error #29-D: expected an expression\n\
                      \u{20}   float x = launch(1;\n                      ^\n\n1 error detected in ...\n";
        let output = output
            .replace("    float", "  float")
            .replace("                      ^", "                    ^");
        let found = parse(&output, &sources(), &scrub());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "expected an expression");
        assert_eq!((found[0].line, found[0].column), (Some(2), Some(23)));
    }

    #[test]
    fn ptxas_diagnostics_are_parsed() {
        let output = "ptxas /tmp/tmpxft_1/big.ptx, line 46; error   : Unknown modifier '.bar'\n\
             ptxas fatal   : Ptx assembly aborted due to errors\n\
             ptxas error   : Entry function '_Z1kILi4EEvPf' uses too much shared data (0x61a80 bytes, 0xc000 max)\n";
        let messages: Vec<_> =
            parse(output, &sources(), &scrub()).into_iter().map(|d| d.message).collect();
        assert_eq!(
            messages,
            [
                "ptxas: Unknown modifier '.bar' (line 46 of the PTX)",
                "ptxas: Ptx assembly aborted due to errors",
                "ptxas: Entry function 'k<4>' uses too much shared data (0x61a80 bytes, 0xc000 max)",
            ]
        );
    }

    #[test]
    fn undefined_symbol_is_located_at_its_use() {
        let output = "/usr/bin/ld: /tmp/scratch.1/obj/kernels@a.cu.o: in function `c':\n\
             tmpxft.cpp:(.text+0x1): undefined reference to `helper(int)'\n\
             collect2: error: ld returned 1 exit status\n";
        let found = parse(output, &sources(), &scrub());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "undefined symbol: helper(int)");
        assert_eq!((found[0].line, found[0].column), (Some(5), Some(9)));
        let lld = "ld.lld: error: undefined symbol: helper(int)\n>>> referenced by a.o";
        assert_eq!(parse(lld, &sources(), &scrub())[0].message, "undefined symbol: helper(int)");
    }

    #[test]
    fn machine_paths_are_removed() {
        let scrub = scrub();
        assert_eq!(scrub.clean("in /home/me/.cache/x.h:3"), "in .../x.h:3");
        assert_eq!(scrub.clean("a / b and 1/2, </etc/passwd>"), "a / b and 1/2, <.../passwd>");
        assert_eq!(scrub.clean("/usr/include/math.h:1"), "/usr/include/math.h:1");
        assert_eq!(scrub.clean("/tmp/scratch.1/src/kernels/a.cu"), "kernels/a.cu");
    }

    #[test]
    fn messages_are_truncated() {
        let long = format!("kernels/a.cu:1:1: error: {}\n", "x".repeat(5000));
        assert!(parse(&long, &sources(), &scrub())[0].message.len() < MAX_MESSAGE + 10);
        assert!(tail(&"line\n".repeat(4000), &scrub()).len() <= MAX_TAIL + 10);
        let line = |number| format!("kernels/a.cu:{number}:1: warning: w\n");
        let many = (1..99).map(line).collect::<Vec<_>>().concat();
        assert_eq!(ranked(parse(&many, &sources(), &scrub())).len(), MAX_DIAGNOSTICS);
    }
}
