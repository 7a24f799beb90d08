//! Glob and Grep: within the workspace only, in bounded time and memory.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
use warpwright_record::candidate::MAX_FILE_BYTES;

use crate::confined_fs::{Entry, Walk};
use crate::elide::{clip_line, elide_middle};
use crate::tools::arguments::{Glob, Grep, OutputMode};
use crate::tools::files::{Answer, NoAnswer, relative};
use crate::workspace::Workspace;

/// Maximum paths that Glob lists.
const MAX_PATHS: usize = 100;
/// Maximum lines or entries that Grep shows.
const MAX_LINES: usize = 2_000;
/// Maximum lines of context on either side.
const MAX_CONTEXT: u32 = 50;
/// Maximum bytes of one answer.
const MAX_ANSWER_BYTES: usize = 30_000;
/// Maximum bytes that one search reads.
const MAX_READ_BYTES: u64 = 64 << 20;
/// Maximum bytes of one line that are searched, and that are shown.
const MAX_LINE_BYTES: usize = 64 << 10;
const MAX_SHOWN_BYTES: usize = 500;
/// Time limit of one search.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Maximum bytes of a pattern, and size limit of its automaton.
const MAX_PATTERN_BYTES: usize = 4_000;
const MAX_AUTOMATON_BYTES: usize = 256 << 10;

/// Lists files by pattern, the most recently modified first.
pub(crate) fn glob(workspace: &Workspace, arguments: &Glob) -> Answer {
    let base = folder(workspace, arguments.path.as_deref())?;
    let matcher = path_pattern(&arguments.pattern)?;
    let Walk { mut files, cut, .. } = workspace.files().walk(&base)?;
    files.retain(|entry| matcher.is_match(below(&base, &entry.path)));
    files.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
    let total = files.len();
    let mut text = String::new();
    for entry in files.iter().take(MAX_PATHS) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", entry.path);
    }
    if total == 0 {
        text.push_str("(no file matches)\n");
    }
    if total > MAX_PATHS {
        let _ = writeln!(text, "[{} more; give a narrower pattern]", total - MAX_PATHS);
    }
    if cut {
        text.push_str("[not all folders were searched: too many names, or too deep]\n");
    }
    Ok(elide_middle(&text, MAX_ANSWER_BYTES))
}

/// Searches files for a regular expression.
pub(crate) fn grep(workspace: &Workspace, arguments: &Grep) -> Answer {
    let regex = line_pattern(&arguments.pattern, arguments.ignore_case)?;
    let base = folder(workspace, arguments.path.as_deref())?;
    let wanted = arguments.glob.as_deref().map(path_pattern).transpose()?;
    let named = |entry: &Entry| match (&wanted, arguments.glob.as_deref()) {
        (Some(matcher), Some(pattern)) => {
            let path = below(&base, &entry.path);
            let name = path.rsplit('/').next().unwrap_or(path);
            matcher.is_match(path) || (!pattern.contains('/') && matcher.is_match(name))
        }
        _ => true,
    };
    let mut search = Search::new(&regex, arguments);
    let walk = workspace.files().walk(&base)?;
    if walk.cut {
        search.notes.push("not all folders were searched: too many names, or too deep");
    }
    for entry in walk.files.iter().filter(|entry| named(entry)) {
        if entry.bytes > MAX_FILE_BYTES {
            search.skipped += 1;
            continue;
        }
        if search.read + entry.bytes > MAX_READ_BYTES {
            search.notes.push("stopped: too many bytes to search; give a narrower path or glob");
            break;
        }
        match workspace.files().read(&entry.path, MAX_FILE_BYTES) {
            Ok(bytes) => search.file(&entry.path, &bytes),
            Err(error) if error.is_ours() => return Err(error.into()),
            // Gone or changed since it was listed.
            Err(_) => search.skipped += 1,
        }
        if search.is_over() {
            break;
        }
    }
    Ok(search.render())
}

struct Search<'a> {
    regex: &'a Regex,
    mode: OutputMode,
    numbers: bool,
    before: usize,
    after: usize,
    limit: usize,
    until: Instant,
    read: u64,
    skipped: usize,
    lines: Vec<String>,
    bytes: usize,
    notes: Vec<&'static str>,
    full: bool,
}

impl<'a> Search<'a> {
    fn new(regex: &'a Regex, arguments: &Grep) -> Self {
        let context =
            |side: Option<u32>| side.or(arguments.context).unwrap_or(0).min(MAX_CONTEXT) as usize;
        let limit = arguments.head_limit.map_or(MAX_LINES, |limit| limit as usize);
        Self {
            regex,
            mode: arguments.output_mode,
            numbers: arguments.line_numbers,
            before: context(arguments.before),
            after: context(arguments.after),
            limit: limit.clamp(1, MAX_LINES),
            until: Instant::now() + MAX_TIME,
            read: 0,
            skipped: 0,
            lines: Vec::new(),
            bytes: 0,
            notes: Vec::new(),
            full: false,
        }
    }

    fn is_over(&self) -> bool {
        self.full || Instant::now() > self.until
    }

    fn file(&mut self, path: &str, bytes: &[u8]) {
        self.read += bytes.len() as u64;
        if bytes.contains(&0) {
            self.skipped += 1;
            return;
        }
        let lines: Vec<&[u8]> =
            bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|b| *b == b'\n').collect();
        let mut matching = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            if self.regex.is_match(&line[..line.len().min(MAX_LINE_BYTES)]) {
                matching.push(at);
                let enough = match self.mode {
                    OutputMode::Content => matching.len() > self.limit,
                    OutputMode::FilesWithMatches => true,
                    OutputMode::Count => false,
                };
                if enough {
                    break;
                }
            }
            if at % 64 == 0 && Instant::now() > self.until {
                break;
            }
        }
        match (self.mode, matching.len()) {
            (_, 0) => {}
            (OutputMode::FilesWithMatches, _) => self.put(path.to_owned()),
            (OutputMode::Count, count) => self.put(format!("{path}:{count}")),
            (OutputMode::Content, _) => self.content(path, &lines, &matching),
        }
    }

    fn content(&mut self, path: &str, lines: &[&[u8]], matching: &[usize]) {
        let mut shown: Option<usize> = None;
        for (nth, &at) in matching.iter().enumerate() {
            let next = matching.get(nth + 1).copied().unwrap_or(usize::MAX);
            let from = at.saturating_sub(self.before).max(shown.map_or(0, |last| last + 1));
            let to = (at + self.after).min(lines.len() - 1).min(next - 1);
            let apart = shown.is_none_or(|last| from > last + 1);
            if apart && self.before + self.after > 0 && !self.lines.is_empty() {
                self.put("--".to_owned());
            }
            for (row, line) in lines.iter().enumerate().take(to + 1).skip(from) {
                let mark = if row == at { ':' } else { '-' };
                let line = String::from_utf8_lossy(&line[..line.len().min(MAX_LINE_BYTES)]);
                let line = clip_line(&line, MAX_SHOWN_BYTES);
                self.put(if self.numbers {
                    format!("{path}{mark}{}{mark}{line}", row + 1)
                } else {
                    format!("{path}{mark}{line}")
                });
                if self.full {
                    return;
                }
            }
            shown = Some(to);
        }
    }

    fn put(&mut self, line: String) {
        if self.lines.len() >= self.limit || self.bytes > MAX_ANSWER_BYTES {
            self.full = true;
            return;
        }
        self.bytes += line.len() + 1;
        self.lines.push(line);
    }

    fn render(self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        if self.lines.is_empty() {
            text.push_str("(no match)\n");
        }
        if self.full {
            let _ =
                writeln!(text, "[there is more; only the first {} are shown]", self.lines.len());
        } else if Instant::now() > self.until {
            let _ = writeln!(
                text,
                "[stopped after {} s; give a narrower path or glob]",
                MAX_TIME.as_secs()
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "[{note}]");
        }
        if self.skipped > 0 {
            let _ = writeln!(text, "[{} files left out: not text, or too large]", self.skipped);
        }
        text
    }
}

fn folder(workspace: &Workspace, given: Option<&str>) -> Result<String, NoAnswer> {
    let given = given.unwrap_or("").trim_end_matches('/');
    if matches!(given, "" | "." | "./")
        || [crate::workspace::JAILED_PATH, &workspace.path().to_string_lossy()].contains(&given)
    {
        return Ok(String::new());
    }
    Ok(relative(workspace, given)?)
}

fn below<'a>(base: &str, path: &'a str) -> &'a str {
    match path.strip_prefix(base) {
        Some("") => path.rsplit('/').next().unwrap_or(path),
        Some(rest) => rest.strip_prefix('/').unwrap_or(rest),
        None => path,
    }
}

fn path_pattern(pattern: &str) -> Result<GlobMatcher, NoAnswer> {
    let refuse = |why: String| {
        let shown = clip_line(pattern, 100);
        NoAnswer::Refused(format!("failed to use the pattern {shown}: {why}"))
    };
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(refuse(format!("it is longer than {MAX_PATTERN_BYTES} bytes")));
    }
    let plain = pattern.strip_prefix(&format!("{}/", crate::workspace::JAILED_PATH));
    let plain = plain.unwrap_or(pattern).trim_start_matches("./");
    let glob = GlobBuilder::new(plain).literal_separator(true).build();
    Ok(glob.map_err(|error| refuse(error.kind().to_string()))?.compile_matcher())
}

/// A pattern whose search takes time linear in the text. Used by BashOutput's filter too.
pub(crate) fn line_pattern(pattern: &str, ignore_case: bool) -> Result<Regex, NoAnswer> {
    let refuse = |why: String| {
        NoAnswer::Refused(format!("failed to use the pattern {}: {why}", clip_line(pattern, 100)))
    };
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(refuse(format!("it is longer than {MAX_PATTERN_BYTES} bytes")));
    }
    let built = RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .size_limit(MAX_AUTOMATON_BYTES)
        .dfa_size_limit(4 * MAX_AUTOMATON_BYTES)
        .build();
    built.map_err(|error| {
        let text = error.to_string();
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("").trim();
        refuse(last.trim_start_matches("error: ").to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::workspace;

    fn scene() -> (tempfile::TempDir, Workspace) {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace::for_tests(&folder.path().join("w"));
        let files = workspace.files();
        files
            .write("kernels/a.cu", b"// one\nint launch(int n);\n// Three\n\nint other;\n")
            .unwrap();
        files.write("kernels/deep/b.cu", b"float LAUNCH;\n").unwrap();
        files.write("notes.md", b"launch it\n").unwrap();
        files.write("blob.bin", b"launch\0").unwrap();
        (folder, workspace)
    }

    fn told(answer: Answer) -> Result<String, String> {
        answer.map_err(|e| match e {
            NoAnswer::Refused(text) => text,
            NoAnswer::Ours(error) => panic!("{error}"),
        })
    }

    fn globbed(workspace: &Workspace, pattern: &str) -> Result<String, String> {
        told(glob(workspace, &Glob { pattern: pattern.to_owned(), path: None }))
    }

    #[test]
    fn files_are_listed_by_pattern_newest_first() {
        let (_folder, workspace) = scene();
        let at = |path: &str, seconds| {
            let file = fs_err::File::options().write(true).open(workspace.path().join(path));
            let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
            file.unwrap().set_modified(time).unwrap();
        };
        at("kernels/a.cu", 1_000);
        at("kernels/deep/b.cu", 2_000);
        assert_eq!(globbed(&workspace, "**/*.cu").unwrap(), "kernels/deep/b.cu\nkernels/a.cu\n");
        assert_eq!(globbed(&workspace, "kernels/*.cu").unwrap(), "kernels/a.cu\n");
        assert_eq!(globbed(&workspace, "/workspace/kernels/*.cu").unwrap(), "kernels/a.cu\n");
        assert_eq!(globbed(&workspace, "*.rs").unwrap(), "(no file matches)\n");
        let below = Glob { pattern: "*.cu".to_owned(), path: Some("kernels/deep/".to_owned()) };
        assert_eq!(told(glob(&workspace, &below)).unwrap(), "kernels/deep/b.cu\n");
        insta::assert_snapshot!(globbed(&workspace, "[a").unwrap_err(), @"failed to use the pattern [a: unclosed character class; missing ']'");
        for i in 0..150 {
            workspace.files().write(&format!("many/{i}.txt"), b"").unwrap();
        }
        let many = globbed(&workspace, "many/*").unwrap();
        assert!(many.ends_with("[50 more; give a narrower pattern]\n"), "{many}");
    }

    #[test]
    fn grep_shows_the_requested_context() {
        let (_folder, workspace) = scene();
        let ask = |grep_for: Grep| told(grep(&workspace, &grep_for)).unwrap();
        let plain = Grep { pattern: "launch".into(), ..Grep::default() };
        insta::assert_snapshot!(ask(plain.clone()), @"
        kernels/a.cu
        notes.md
        [1 files left out: not text, or too large]
        ");
        let content = Grep {
            output_mode: OutputMode::Content,
            ignore_case: true,
            line_numbers: true,
            context: Some(1),
            glob: Some("*.cu".into()),
            ..plain.clone()
        };
        insta::assert_snapshot!(ask(content.clone()), @"
        kernels/a.cu-1-// one
        kernels/a.cu:2:int launch(int n);
        kernels/a.cu-3-// Three
        --
        kernels/deep/b.cu:1:float LAUNCH;
        ");
        insta::assert_snapshot!(ask(Grep { head_limit: Some(1), ..content }), @"
        kernels/a.cu-1-// one
        [there is more; only the first 1 are shown]
        ");
        let count = Grep {
            output_mode: OutputMode::Count,
            pattern: "int|//".into(),
            path: Some("kernels/a.cu".into()),
            ..plain
        };
        insta::assert_snapshot!(ask(count), @"kernels/a.cu:4");
        let bad = Grep { pattern: "(".into(), ..Grep::default() };
        insta::assert_snapshot!(told(grep(&workspace, &bad)).unwrap_err(), @"failed to use the pattern (: unclosed group");
        let huge = Grep { pattern: "(a{1000}){1000}".into(), ..Grep::default() };
        assert!(told(grep(&workspace, &huge)).unwrap_err().contains("size limit"));
    }

    #[test]
    fn glob_and_grep_stay_within_the_workspace() {
        let (folder, workspace) = scene();
        fs_err::create_dir(folder.path().join("other")).unwrap();
        fs_err::write(folder.path().join("other/secret.cu"), "launch secret").unwrap();
        symlink("../other", workspace.path().join("link")).unwrap();
        symlink("../other/secret.cu", workspace.path().join("secret.cu")).unwrap();
        let control = fs_err::read_to_string(workspace.path().join("link/secret.cu")).unwrap();
        assert_eq!(control, "launch secret", "positive control: plain access follows the link");
        assert!(!globbed(&workspace, "**/*.cu").unwrap().contains("secret"));
        let plain = Grep { pattern: "secret".into(), ..Grep::default() };
        assert_eq!(
            told(grep(&workspace, &plain)).unwrap(),
            "(no match)\n[1 files left out: not text, or too large]\n"
        );
        for path in ["link", "../other", "/etc", "link/secret.cu", "secret.cu"] {
            let path = Some(path.to_owned());
            assert!(told(grep(&workspace, &Grep { path: path.clone(), ..plain.clone() })).is_err());
            assert!(told(glob(&workspace, &Glob { pattern: "*".into(), path })).is_err());
        }
    }

    #[test]
    fn pathological_regex_finds_no_match() {
        let (_folder, workspace) = scene();
        workspace.files().write("long", &vec![b'a'; 1 << 20]).unwrap();
        // A search by backtracking would never end.
        let slow = Grep {
            pattern: "(a*)*(a*)*b$".into(),
            path: Some("long".to_owned()),
            ..Grep::default()
        };
        assert_eq!(told(grep(&workspace, &slow)).unwrap(), "(no match)\n");
    }
}
