//! Reading a run folder, whether it is closed, was killed, or is being written.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::blob::BlobHash;
use crate::candidate::Candidate;
use crate::error::ReadError;
use crate::event::{EventLine, StoredFile};
use crate::run::{FORMAT_VERSION, Layout, RunHeader};

/// A run folder open for reading.
#[derive(Debug)]
pub struct RunReader {
    layout: Layout,
    header: RunHeader,
}

impl RunReader {
    /// Opens the run in `dir`. A newer format is accepted here if `run.json` can be understood;
    /// [`RunReader::events`] refuses at the first event that cannot.
    pub fn open(dir: &Path) -> Result<Self, ReadError> {
        let layout = Layout::new(dir);
        let path = layout.header();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(ReadError::NotARun { path: dir.to_owned() });
            }
            Err(e) => return Err(ReadError::io(dir)(e)),
        };
        let header = serde_json::from_slice(&bytes).map_err(|e| {
            let found = format_of(&bytes, "format");
            unreadable(&path, e.line() as u64, found, &e)
        })?;
        Ok(Self { layout, header })
    }

    /// What `run.json` says.
    pub fn header(&self) -> &RunHeader {
        &self.header
    }

    /// The run folder.
    pub fn dir(&self) -> &Path {
        &self.layout.root
    }

    /// Every event in order. One half-written line at the end, which a killed writer leaves, is
    /// passed over; anything else that is not an event is an error naming the line, after which
    /// the iterator ends.
    pub fn events(&self) -> Result<Events, ReadError> {
        let root = &self.layout.root;
        // A plain file is complete whenever it exists: see `RunWriter::close`.
        let plain = self.layout.events();
        let (path, source): (PathBuf, Box<dyn Read + Send>) = match fs::File::open(&plain) {
            Ok(file) => (plain, Box::new(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let packed = self.layout.packed();
                match fs::File::open(&packed) {
                    Ok(file) => {
                        let decoder = zstd::Decoder::new(file).map_err(ReadError::io(root))?;
                        (packed, Box::new(decoder))
                    }
                    // Killed between run.json and the first event.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => (plain, Box::new(io::empty())),
                    Err(e) => return Err(ReadError::io(root)(e)),
                }
            }
            Err(e) => return Err(ReadError::io(root)(e)),
        };
        Ok(Events {
            root: root.clone(),
            path,
            source: BufReader::with_capacity(1 << 16, source),
            next: 0,
            intact_bytes: 0,
            torn_bytes: 0,
            done: false,
        })
    }

    /// The bytes of a blob, checked against its name.
    pub fn blob(&self, hash: BlobHash) -> Result<Vec<u8>, ReadError> {
        let root = &self.layout.root;
        let path = hash.path(root);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(ReadError::BlobMissing { hash, path: root.clone() });
            }
            Err(e) => return Err(ReadError::io(root)(e)),
        };
        let actual = BlobHash::of(&bytes);
        if actual == hash { Ok(bytes) } else { Err(ReadError::BlobDamaged { path, actual }) }
    }
}

impl RunReader {
    /// Stored files as a candidate, e.g. to judge it again or to put a workspace back.
    pub fn candidate(&self, files: &[StoredFile]) -> Result<Candidate, ReadError> {
        let read = |file: &StoredFile| Ok((file.path.clone(), self.blob(file.blob)?));
        Ok(Candidate::from_files(files.iter().map(read).collect::<Result<_, _>>()?))
    }
}

/// Iterator over the events of a run.
pub struct Events {
    root: PathBuf,
    path: PathBuf,
    source: BufReader<Box<dyn Read + Send>>,
    next: u64,
    intact_bytes: u64,
    torn_bytes: u64,
    done: bool,
}

impl Events {
    /// Bytes of the half-written last line; known once the iterator has ended.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Bytes of the complete lines read so far.
    pub fn intact_bytes(&self) -> u64 {
        self.intact_bytes
    }

    fn read(&mut self) -> Result<Option<EventLine>, ReadError> {
        let mut bytes = Vec::new();
        let length =
            self.source.read_until(b'\n', &mut bytes).map_err(ReadError::io(&self.root))? as u64;
        if bytes.pop() != Some(b'\n') {
            // Every event is one write that ends in a newline, so this one was cut short.
            self.torn_bytes = length;
            return Ok(None);
        }
        let number = self.next + 1;
        let line: EventLine = serde_json::from_slice(&bytes).map_err(|e| {
            let found = format_of(&bytes, "version");
            unreadable(&self.path, number, found, &e)
        })?;
        if line.seq != self.next {
            let reason = format!("found event {} instead of event {}", line.seq, self.next);
            return Err(ReadError::Damaged { path: self.path.clone(), line: number, reason });
        }
        self.next += 1;
        self.intact_bytes += length;
        Ok(Some(line))
    }
}

impl Iterator for Events {
    type Item = Result<EventLine, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = self.read().transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

/// The version a piece of JSON claims, if it is JSON at all.
fn format_of(bytes: &[u8], key: &str) -> Option<u32> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    u32::try_from(value.get(key)?.as_u64()?).ok()
}

fn unreadable(path: &Path, line: u64, found: Option<u32>, error: &serde_json::Error) -> ReadError {
    match found {
        Some(found) if found > FORMAT_VERSION => ReadError::NewerFormat {
            path: path.to_owned(),
            found,
            supported: FORMAT_VERSION,
            reason: format!("line {line} cannot be understood: {error}"),
        },
        _ => ReadError::Damaged { path: path.to_owned(), line, reason: error.to_string() },
    }
}
