//! Images of device code, read from the files of an artifact.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use warpwright_plan::Module;

use crate::failure::{Failure, printable};

/// Most modules of a plan.
const MAX_MODULES: usize = 256;
/// Most bytes of all images together.
const MAX_BYTES: u64 = 256 << 20;

/// Reads the image of every module and compares its hash.
pub(crate) fn images(artifact: &Path, modules: &[Module]) -> Result<Vec<Vec<u8>>, Failure> {
    if modules.len() > MAX_MODULES {
        return Err(Failure::Plan(format!(
            "{} modules are more than {MAX_MODULES}",
            modules.len()
        )));
    }
    let total = modules.iter().try_fold(0u64, |total, module| total.checked_add(module.bytes));
    if total.is_none_or(|total| total > MAX_BYTES) {
        return Err(Failure::Plan(format!("the images exceed {MAX_BYTES} bytes")));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(artifact, flags, Mode::empty());
    let folder = folder.map_err(|error| {
        Failure::Artifact(format!("failed to open {}: {error}", artifact.display()))
    })?;
    modules.iter().map(|module| image(&folder, module)).collect()
}

fn image(folder: &OwnedFd, module: &Module) -> Result<Vec<u8>, Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::Artifact(format!(
            "failed to read device code in {}: {why}",
            printable(&module.file)
        ))
    };
    let file = open(folder, &module.file).map_err(|error| fail(&error))?;
    let stat = rustix::fs::fstat(&file).map_err(|error| fail(&error))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(fail(&"it is no regular file"));
    }
    let end = module.offset.checked_add(module.bytes);
    let length = u64::try_from(stat.st_size).unwrap_or(0);
    if end.is_none_or(|end| end > length) {
        return Err(fail(&"it is too short"));
    }
    let mut bytes = vec![0; usize::try_from(module.bytes).map_err(|error| fail(&error))?];
    File::from(file).read_exact_at(&mut bytes, module.offset).map_err(|error| fail(&error))?;
    if blake3::hash(&bytes).to_hex().as_str() != module.hash {
        return Err(fail(&"its hash is not that of the plan"));
    }
    Ok(bytes)
}

/// Opens a file below a folder, one name after the other: no name leads out of the folder, and none may be a
/// symbolic link. (The jail has no `openat2`, which could do it at once.)
fn open(folder: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_name = |name: &&str| !name.is_empty() && *name != "." && *name != "..";
    let below = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut current: Option<OwnedFd> = None;
    let within = |current: &Option<OwnedFd>, name: &str, flags: OFlags| {
        let name = Some(name).filter(is_name).ok_or(Errno::INVAL)?;
        let from = current.as_ref().map_or(folder.as_fd(), AsFd::as_fd);
        rustix::fs::openat(from, name, flags, Mode::empty())
    };
    for folder in folders.split('/').filter(|_| path.contains('/')) {
        current = Some(within(&current, folder, below)?);
    }
    // A pipe does not block.
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    within(&current, name, flags)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn module(file: &str, offset: u64, content: &[u8]) -> Module {
        let hash = blake3::hash(content).to_hex().to_string();
        Module { hash, file: file.to_owned(), offset, bytes: content.len() as u64 }
    }

    #[test]
    fn image_is_read_from_its_place() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(folder.path().join("lib")).unwrap();
        fs_err::write(folder.path().join("lib/k.so"), b"....image..").unwrap();
        let read =
            images(folder.path(), &[module("lib/k.so", 4, b"image"), module("lib/k.so", 0, b"")]);
        assert_eq!(read.unwrap(), [b"image".to_vec(), Vec::new()]);
    }

    #[test]
    fn hostile_places_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("artifact");
        fs_err::create_dir_all(inner.join("folder")).unwrap();
        fs_err::write(folder.path().join("secret"), b"image").unwrap();
        fs_err::write(inner.join("k.so"), b"image").unwrap();
        symlink(folder.path().join("secret"), inner.join("link")).unwrap();
        symlink(folder.path(), inner.join("up")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, inner.join("pipe"), FileType::Fifo, Mode::RWXU, 0)
            .unwrap();
        assert!(images(&inner, &[module("k.so", 0, b"image")]).is_ok(), "the control");
        let absolute = folder.path().join("secret");
        let places = [
            "../secret",
            "link",
            "up/secret",
            "folder/../../secret",
            absolute.to_str().unwrap(),
            "folder",
            "pipe",
            "missing",
            "",
            ".",
            "k.so\0",
        ];
        for place in places {
            let refused = images(&inner, &[module(place, 0, b"image")]);
            assert!(matches!(refused, Err(Failure::Artifact(_))), "{place:?}: {refused:?}");
        }
    }

    #[test]
    fn other_content_or_length_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("k.so"), b"image").unwrap();
        let refused = [
            module("k.so", 0, b"imagE"),
            module("k.so", 1, b"image"),
            module("k.so", u64::MAX, b"image"),
            Module { hash: String::new(), ..module("k.so", 0, b"image") },
        ];
        for module in refused {
            assert!(
                matches!(
                    images(folder.path(), std::slice::from_ref(&module)),
                    Err(Failure::Artifact(_))
                ),
                "{module:?}"
            );
        }
        let huge = Module { bytes: u64::MAX, ..module("k.so", 0, b"image") };
        assert!(matches!(images(folder.path(), &[huge.clone(), huge]), Err(Failure::Plan(_))));
    }
}
