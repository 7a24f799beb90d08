//! Read, Write, Edit and MultiEdit: within the workspace only, and never a read-only file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpwright_record::candidate::MAX_FILE_BYTES;

use crate::confined_fs::FileError;
use crate::elide::clip_line;
use crate::tools::arguments::{Edit, MultiEdit, Read, Replacement, Write};
use crate::workspace::{JAILED_PATH, Workspace};

/// Default number of lines that Read shows.
const DEFAULT_LINES: u64 = 2_000;
/// Maximum bytes of one line that Read shows.
const MAX_LINE_BYTES: usize = 2_000;
/// Maximum edits in one call of MultiEdit.
const MAX_EDITS: usize = 100;
/// Maximum bytes of one answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The answer of a file tool: text, or the reason why there is none.
pub(crate) type Answer = Result<String, NoAnswer>;

/// Why a file tool failed.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The policy's error; the text says how to fix it.
    Refused(String),
    /// An infrastructure error, e.g. a full disk.
    Ours(FileError),
}

impl From<String> for NoAnswer {
    fn from(text: String) -> Self {
        Self::Refused(text)
    }
}

impl From<FileError> for NoAnswer {
    fn from(error: FileError) -> Self {
        if error.is_ours() { Self::Ours(error) } else { Self::Refused(error.to_string()) }
    }
}

/// The files that a policy has read: an existing file may be written only after that.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<BTreeSet<String>>);

impl Seen {
    /// Marks a path as read, as the calls of a recorded episode did.
    pub(crate) fn mark(&self, workspace: &Workspace, path: &str) {
        if let Ok(path) = relative(workspace, path) {
            self.paths().insert(path);
        }
    }

    fn paths(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows a file with line numbers.
pub(crate) fn read(workspace: &Workspace, seen: &Seen, arguments: &Read) -> Answer {
    let path = relative(workspace, &arguments.file_path)?;
    let text = text_of(workspace, &path)?;
    let first = arguments.offset.unwrap_or(1).max(1);
    let limit = arguments.limit.unwrap_or(DEFAULT_LINES);
    let total = text.lines().count() as u64;
    if first > total && total > 0 {
        return Err(format!("failed to read {path}: it has {total} lines, not {first}").into());
    }
    let mut shown = String::new();
    let mut last = first - 1;
    let skipped = usize::try_from(first - 1).unwrap_or(usize::MAX);
    for line in text.lines().skip(skipped).take(usize::try_from(limit).unwrap_or(usize::MAX)) {
        if shown.len() > MAX_ANSWER_BYTES {
            break;
        }
        last += 1;
        let _ = writeln!(shown, "{last:>6}\t{}", clip_line(line, MAX_LINE_BYTES));
    }
    seen.paths().insert(path);
    if total == 0 {
        return Ok("(the file is empty)\n".to_owned());
    }
    if last < total {
        let (left, next) = (total - last, last + 1);
        let _ = writeln!(shown, "[{left} more lines; continue with offset {next}]");
    }
    Ok(shown)
}

/// Writes a whole file.
pub(crate) fn write(workspace: &Workspace, seen: &Seen, arguments: &Write) -> Answer {
    let path = writable(workspace, &arguments.file_path)?;
    if workspace.files().exists(&path) && !seen.paths().contains(&path) {
        return Err(format!(
            "failed to write {path}: it exists and has not been read; read it first"
        )
        .into());
    }
    store(workspace, &path, &arguments.content)?;
    let lines = arguments.content.lines().count();
    seen.paths().insert(path.clone());
    Ok(format!("wrote {path}: {lines} lines, {} bytes\n", arguments.content.len()))
}

/// Replaces text in a file.
pub(crate) fn edit(workspace: &Workspace, seen: &Seen, arguments: Edit) -> Answer {
    let path = editable(workspace, seen, &arguments.file_path)?;
    let text = text_of(workspace, &path)?;
    let Edit { old_string, new_string, replace_all, .. } = arguments;
    let (changed, count) = replaced(&text, &Replacement { old_string, new_string, replace_all })
        .map_err(|why| format!("failed to edit {path}: {why}"))?;
    store(workspace, &path, &changed)?;
    Ok(format!("edited {path}: {count} replaced\n"))
}

/// Makes several replacements in a file, or none.
pub(crate) fn multi_edit(workspace: &Workspace, seen: &Seen, arguments: &MultiEdit) -> Answer {
    let path = editable(workspace, seen, &arguments.file_path)?;
    let edits = &arguments.edits;
    if edits.is_empty() || edits.len() > MAX_EDITS {
        let count = edits.len();
        return Err(format!("failed to edit {path}: {count} edits, not 1 to {MAX_EDITS}").into());
    }
    let mut text = text_of(workspace, &path)?;
    let mut counts = Vec::with_capacity(edits.len());
    for (at, edit) in edits.iter().enumerate() {
        let (changed, count) = replaced(&text, edit).map_err(|why| {
            let number = at + 1;
            format!("failed to edit {path}: edit {number}: {why}; nothing was changed")
        })?;
        text = changed;
        counts.push(count.to_string());
    }
    store(workspace, &path, &text)?;
    let (edits, counts) = (edits.len(), counts.join(", "));
    Ok(format!("edited {path}: {edits} edits, replaced {counts}\n"))
}

fn editable(workspace: &Workspace, seen: &Seen, given: &str) -> Result<String, String> {
    let path = writable(workspace, given)?;
    if !seen.paths().contains(&path) && workspace.files().exists(&path) {
        return Err(format!("failed to edit {path}: it has not been read; read it first"));
    }
    Ok(path)
}

/// The text after a replacement, and the number of replacements.
fn replaced(text: &str, edit: &Replacement) -> Result<(String, usize), String> {
    let (old, new) = (edit.old_string.as_str(), edit.new_string.as_str());
    if old.is_empty() {
        return Err("old_string is empty; use Write for a new file".to_owned());
    }
    if old == new {
        return Err("old_string and new_string are the same".to_owned());
    }
    let count = text.matches(old).count();
    // Counted before it is made: a short text can become a very long one.
    let longer = (text.len() - count * old.len()).saturating_add(count.saturating_mul(new.len()));
    if longer as u64 > MAX_FILE_BYTES {
        return Err(format!("the file would have {longer} bytes, more than {MAX_FILE_BYTES}"));
    }
    match count {
        0 => Err("old_string does not occur in it".to_owned()),
        1 => Ok((text.replacen(old, new, 1), 1)),
        _ if edit.replace_all => Ok((text.replace(old, new), count)),
        _ => Err(format!(
            "old_string occurs {count} times; give more of the text around it, or set replace_all"
        )),
    }
}

fn store(workspace: &Workspace, path: &str, text: &str) -> Result<(), NoAnswer> {
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("failed to write {path}: more than {MAX_FILE_BYTES} bytes").into());
    }
    Ok(workspace.files().write(path, text.as_bytes())?)
}

fn text_of(workspace: &Workspace, path: &str) -> Result<String, NoAnswer> {
    let bytes = workspace.files().read(path, MAX_FILE_BYTES)?;
    String::from_utf8(bytes)
        .map_err(|_| format!("failed to read {path}: it is not UTF-8 text").into())
}

fn writable(workspace: &Workspace, given: &str) -> Result<String, String> {
    let path = relative(workspace, given)?;
    if Workspace::is_read_only(&path) {
        return Err(format!("failed to write {path}: it is read-only"));
    }
    Ok(path)
}

/// A policy's path, relative to the workspace. Absolute paths are accepted if they name the
/// workspace, inside or outside the jail.
pub(crate) fn relative(workspace: &Workspace, given: &str) -> Result<String, String> {
    let outside = workspace.path().to_string_lossy();
    let inside = [JAILED_PATH, outside.as_ref()]
        .into_iter()
        .find_map(|root| given.strip_prefix(root)?.strip_prefix('/'));
    let mut path = inside.unwrap_or(given);
    while let Some(rest) = path.strip_prefix("./") {
        path = rest;
    }
    if path.starts_with('/') {
        return Err(format!("failed to use the path {given}: it is outside the workspace"));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::workspace;

    /// The text of an answer, or of a refusal.
    type Told = Result<String, String>;

    fn told(answer: Answer) -> Told {
        answer.map_err(|no| match no {
            NoAnswer::Refused(text) => text,
            NoAnswer::Ours(error) => panic!("ours: {error}"),
        })
    }

    struct Scene {
        _folder: tempfile::TempDir,
        workspace: Workspace,
        seen: Seen,
    }

    impl Scene {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let workspace = workspace::for_tests(&folder.path().join("w"));
            Self { _folder: folder, workspace, seen: Seen::default() }
        }
        fn read(&mut self, path: &str, offset: Option<u64>, limit: Option<u64>) -> Told {
            let arguments = Read { file_path: path.to_owned(), offset, limit };
            told(read(&self.workspace, &self.seen, &arguments))
        }
        fn write(&mut self, path: &str, content: &str) -> Told {
            let arguments = Write { file_path: path.to_owned(), content: content.to_owned() };
            told(write(&self.workspace, &self.seen, &arguments))
        }
        fn edit(&mut self, path: &str, old: &str, new: &str, replace_all: bool) -> Told {
            let (old_string, new_string) = (old.to_owned(), new.to_owned());
            let arguments =
                Edit { file_path: path.to_owned(), old_string, new_string, replace_all };
            told(edit(&self.workspace, &self.seen, arguments))
        }
    }

    #[test]
    fn read_numbers_lines_and_gives_the_next_offset() {
        let mut scene = Scene::new();
        scene.write("notes", "one\ntwo\nthree\nfour\n").unwrap();
        insta::assert_snapshot!(scene.read("notes", Some(2), Some(2)).unwrap(), @r"
             2	two
             3	three
        [1 more lines; continue with offset 4]
        ");
        insta::assert_snapshot!(scene.read("notes", Some(9), None).unwrap_err(), @"failed to read notes: it has 4 lines, not 9");
        insta::assert_snapshot!(scene.read("nothing", None, None).unwrap_err(), @"failed to open nothing: there is no such file");
        scene.write("empty", "").unwrap();
        assert_eq!(scene.read("empty", None, None).unwrap(), "(the file is empty)\n");
    }

    #[test]
    fn unread_file_cannot_be_overwritten() {
        let mut scene = Scene::new();
        scene.workspace.files().write("kernels/a.cu", b"old").unwrap();
        insta::assert_snapshot!(scene.write("kernels/a.cu", "new").unwrap_err(), @"failed to write kernels/a.cu: it exists and has not been read; read it first");
        assert!(scene.edit("kernels/a.cu", "old", "new", false).is_err());
        scene.read("kernels/a.cu", None, None).unwrap();
        insta::assert_snapshot!(scene.write("kernels/a.cu", "new\n").unwrap(), @"wrote kernels/a.cu: 1 lines, 4 bytes");
    }

    #[test]
    fn an_edit_needs_a_unique_match() {
        let mut scene = Scene::new();
        scene.write("kernels/a.cu", "int a = 1;\nint b = 1;\n").unwrap();
        insta::assert_snapshot!(scene.edit("kernels/a.cu", "= 1", "= 2", false).unwrap_err(), @"failed to edit kernels/a.cu: old_string occurs 2 times; give more of the text around it, or set replace_all");
        insta::assert_snapshot!(scene.edit("kernels/a.cu", "= 3", "= 2", false).unwrap_err(), @"failed to edit kernels/a.cu: old_string does not occur in it");
        scene.edit("kernels/a.cu", "a = 1", "a = 2", false).unwrap();
        scene.edit("kernels/a.cu", "int", "long", true).unwrap();
        let text = scene.workspace.files().read("kernels/a.cu", 100).unwrap();
        assert_eq!(text, b"long a = 2;\nlong b = 1;\n");
    }

    #[test]
    fn multi_edit_applies_all_edits_in_order_or_none() {
        let mut scene = Scene::new();
        scene.write("kernels/a.cu", "a b\n").unwrap();
        let multi = |scene: &Scene, edits: &[(&str, &str)]| {
            let edits = edits.iter().map(|(old, new)| Replacement {
                old_string: (*old).to_owned(),
                new_string: (*new).to_owned(),
                replace_all: false,
            });
            let (file_path, edits) = ("kernels/a.cu".to_owned(), edits.collect());
            told(multi_edit(&scene.workspace, &scene.seen, &MultiEdit { file_path, edits }))
        };
        let text = |scene: &Scene| scene.workspace.files().read("kernels/a.cu", 100).unwrap();
        insta::assert_snapshot!(multi(&scene, &[("a", "c"), ("x", "y")]).unwrap_err(), @"failed to edit kernels/a.cu: edit 2: old_string does not occur in it; nothing was changed");
        assert_eq!(text(&scene), b"a b\n");
        insta::assert_snapshot!(multi(&scene, &[("a", "c"), ("c b", "done")]).unwrap(), @"edited kernels/a.cu: 2 edits, replaced 1, 1");
        assert_eq!(text(&scene), b"done\n");
        assert!(multi(&scene, &[]).is_err());
    }

    #[test]
    fn oversized_edit_result_is_refused_before_allocation() {
        let mut scene = Scene::new();
        scene.write("kernels/a.cu", &"x".repeat(4 << 20)).unwrap();
        let refused = scene.edit("kernels/a.cu", "x", &"y".repeat(1 << 20), true).unwrap_err();
        assert!(refused.contains("the file would have 4398046511104 bytes"), "{refused}");
        assert!(scene.edit("kernels/a.cu", "x", "y", true).is_ok(), "positive control");
    }

    #[test]
    fn read_only_files_can_be_read_but_not_changed() {
        let mut scene = Scene::new();
        for path in ["SKILL.md", "model.py", "binding.cpp", "utils/verification.py", "utils/new.py"]
        {
            if path != "utils/new.py" {
                scene.read(path, None, None).unwrap();
            }
            let refused = scene.write(path, "mine").unwrap_err();
            assert_eq!(refused, format!("failed to write {path}: it is read-only"));
            assert!(scene.edit(path, "a", "b", true).is_err());
        }
        let absolute = format!("{JAILED_PATH}/model.py");
        assert!(scene.read(&absolute, None, None).is_ok());
        assert!(scene.write(&absolute, "mine").unwrap_err().ends_with("it is read-only"));
    }

    #[test]
    fn symlinks_made_in_the_shell_are_refused() {
        let mut scene = Scene::new();
        let root = scene.workspace.path().to_owned();
        fs_err::write(root.parent().unwrap().join("secret"), "secret").unwrap();
        symlink("../secret", root.join("notes")).unwrap();
        symlink("utils", root.join("mine")).unwrap();
        let control = fs_err::read_to_string(root.join("notes")).unwrap();
        assert_eq!(control, "secret", "positive control: the link works for plain access");
        assert!(scene.read("notes", None, None).unwrap_err().contains("symbolic link"));
        scene.seen.mark(&scene.workspace, "notes");
        assert!(scene.write("notes", "x").unwrap_err().contains("symbolic link"));
        // A link inside the workspace to a read-only folder would get round the list of names.
        fs_err::write(root.join("mine/control.py"), "").expect("positive control");
        scene.seen.mark(&scene.workspace, "mine/new.py");
        assert!(scene.write("mine/new.py", "x").unwrap_err().contains("symbolic link"));
        for path in ["../secret", "/etc/passwd", "kernels/../../secret"] {
            assert!(scene.read(path, None, None).is_err(), "{path}");
            assert!(scene.write(path, "x").is_err(), "{path}");
        }
    }
}
