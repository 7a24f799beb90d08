//! Writing a file so that a reader never sees half of it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;

/// A name beside `out` for a file that is being written.
pub(crate) fn temporary(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    out.with_file_name(name)
}

/// Writes `out` beside its place by `write`, then renames it. Nothing is left behind on failure.
pub(crate) fn replace<E: From<io::Error>>(
    out: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let temporary = temporary(out);
    let write_all = || {
        let mut file = io::BufWriter::new(fs::File::create(&temporary)?);
        write(&mut file)?;
        file.flush()?;
        drop(file);
        Ok(fs::rename(&temporary, out)?)
    };
    let done: Result<(), E> = write_all();
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}
