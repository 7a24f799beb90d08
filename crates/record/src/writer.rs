//! Writing a run folder.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fs_err as fs;

use crate::blob::{self, BlobHash};
use crate::candidate::Candidate;
use crate::error::{ReadError, WriteError, is_full};
use crate::event::{Event, EventLine, StoredCandidate, StoredFile};
use crate::index;
use crate::reader::RunReader;
use crate::run::{FORMAT_VERSION, Layout, Machine, PROGRAM_VERSION, RunHeader, RunInfo};

/// What to do if another version of the program wrote the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumePolicy {
    /// Refuse: the record would mix figures of two versions.
    SameProgram,
    /// Resume, and note the mix in the record.
    Forced,
}

/// The only writer of a run folder. Threads may share it: each event is one whole line.
#[derive(Debug)]
pub struct RunWriter {
    layout: Layout,
    log: Mutex<Log>,
    /// Held for the writer's life: the lock is the open file's, so that it ends with the process,
    /// however that ends.
    _lock: std::fs::File,
}

#[derive(Debug)]
struct Log {
    file: fs::File,
    /// `seq` of the next event.
    next: u64,
    /// Length of the complete lines.
    bytes: u64,
    /// A half line is on disk that could not be taken back.
    broken: bool,
}

impl RunWriter {
    /// Begins a run in `dir`, which is made if it does not exist and must not hold a run. Writes
    /// `run.json` and the event [`Event::RunStarted`].
    pub fn create(dir: &Path, info: RunInfo) -> Result<Self, WriteError> {
        let layout = Layout::new(dir);
        fs::create_dir_all(dir).map_err(WriteError::io("make the run folder"))?;
        let lock = lock(&layout)?;
        if layout.header().exists() {
            return Err(WriteError::Exists { path: dir.to_owned() });
        }
        let header = RunHeader {
            format: FORMAT_VERSION,
            program: PROGRAM_VERSION.to_owned(),
            created: jiff::Timestamp::now(),
            command: info.command,
            config: info.config,
            machine: Machine::here(),
        };
        let json = serde_json::to_vec_pretty(&header)
            .map_err(|source| WriteError::Encode { kind: "run.json", source })?;
        write_whole(&layout, &layout.header(), "run.json", &json)?;
        let writer = Self::open_log(layout, lock, 0, 0)?;
        let RunHeader { program, command, .. } = header;
        writer.append(&Event::RunStarted { program, command })?;
        Ok(writer)
    }

    /// Takes up the run in `dir` again: drops a half-written last event, unpacks the events if the
    /// run was closed, and appends [`Event::RunResumed`].
    pub fn resume(dir: &Path, policy: ResumePolicy) -> Result<Self, WriteError> {
        let layout = Layout::new(dir);
        let reader = RunReader::open(dir)?;
        let found = reader.header().format;
        if found > FORMAT_VERSION {
            let (path, supported) = (dir.to_owned(), FORMAT_VERSION);
            return Err(WriteError::NewerFormat { path, found, supported });
        }
        let lock = lock(&layout)?;
        // Read only under the lock: until then another writer may have been at it.
        let mut recorded = reader.header().program.clone();
        let mut events = reader.events()?;
        let mut next = 0;
        for line in &mut events {
            let line = line?;
            if line.version > FORMAT_VERSION {
                let (path, supported) = (dir.to_owned(), FORMAT_VERSION);
                return Err(WriteError::NewerFormat { path, found: line.version, supported });
            }
            if let Event::RunResumed { program, .. } = line.event {
                recorded = program;
            }
            next = line.seq + 1;
        }
        let (bytes, torn_bytes) = (events.intact_bytes(), events.torn_bytes());
        drop(events);
        let forced = recorded != PROGRAM_VERSION;
        if forced && policy == ResumePolicy::SameProgram {
            let (path, current) = (dir.to_owned(), PROGRAM_VERSION.to_owned());
            return Err(WriteError::OtherProgram { path, recorded, current });
        }
        unpack(&layout)?;
        let writer = Self::open_log(layout, lock, next, bytes)?;
        let program = PROGRAM_VERSION.to_owned();
        writer.append(&Event::RunResumed { program, forced, torn_bytes })?;
        Ok(writer)
    }

    fn open_log(
        layout: Layout,
        lock: std::fs::File,
        next: u64,
        bytes: u64,
    ) -> Result<Self, WriteError> {
        let file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(layout.events())
            .map_err(WriteError::io("open the event log"))?;
        file.set_len(bytes).map_err(WriteError::io("drop a half-written event"))?;
        let log = Mutex::new(Log { file, next, bytes, broken: false });
        Ok(Self { layout, log, _lock: lock })
    }

    /// The run folder.
    pub fn dir(&self) -> &Path {
        &self.layout.root
    }

    /// Appends an event and gives it to the operating system before returning, so that killing the
    /// process afterwards cannot lose it. Returns its `seq`.
    ///
    /// When this fails the log is as it was before; after [`WriteError::Full`] the caller may make
    /// room and append again.
    pub fn append(&self, event: &Event) -> Result<u64, WriteError> {
        let mut log = self.lock_log();
        let path = self.layout.events();
        if log.broken {
            return Err(WriteError::Broken { path });
        }
        let seq = log.next;
        let line = EventLine {
            version: FORMAT_VERSION,
            seq,
            time: jiff::Timestamp::now(),
            event: event.clone(),
        };
        let mut json = serde_json::to_vec(&line)
            .map_err(|source| WriteError::Encode { kind: event.kind(), source })?;
        json.push(b'\n');
        if let Err(error) = log.file.write_all(&json) {
            let bytes = log.bytes;
            log.broken = log.file.set_len(bytes).is_err();
            return Err(self.failed(error, &path, &describe(event), seq));
        }
        log.next += 1;
        log.bytes += json.len() as u64;
        if matches!(event, Event::EpisodeFinished { .. } | Event::RunFinished { .. }) {
            // Rare and precious: these survive a power cut too.
            log.file.sync_data().map_err(WriteError::io("flush the event log to disk"))?;
        }
        Ok(seq)
    }

    /// Stores `bytes` in `blobs/`; storing the same bytes again is free.
    pub fn put_blob(&self, bytes: &[u8]) -> Result<BlobHash, WriteError> {
        blob::put(&self.layout.root, bytes).map_err(|error| {
            let lost = format!("a blob of {} bytes", bytes.len());
            let next = self.lock_log().next;
            self.failed(error, &self.layout.root.join("blobs"), &lost, next)
        })
    }

    /// Stores named files, e.g. a snapshot of the workspace. The result is sorted by path.
    pub fn put_files<'a>(
        &self,
        files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Vec<StoredFile>, WriteError> {
        let mut stored = Vec::new();
        for (path, bytes) in files {
            stored.push(StoredFile { path: path.to_owned(), blob: self.put_blob(bytes)? });
        }
        stored.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(stored)
    }

    /// Stores a candidate's files.
    pub fn put_candidate(&self, candidate: &Candidate) -> Result<StoredCandidate, WriteError> {
        let files =
            self.put_files(candidate.files().iter().map(|(k, v)| (k.as_str(), v.as_slice())))?;
        Ok(StoredCandidate { hash: candidate.hash().to_owned(), files })
    }

    /// Closes the run: compresses the events and builds the index. A run that is not closed is
    /// whole all the same; it only takes more room.
    pub fn close(self) -> Result<(), WriteError> {
        index::rebuild_index(&self.layout.root)?;
        let (plain, packed) = (self.layout.events(), self.layout.packed());
        let temporary = packed.with_extension("zst.tmp");
        let done = pack(&plain, &temporary).and_then(|()| fs::rename(&temporary, &packed));
        if let Err(error) = done {
            let _ = fs::remove_file(&temporary);
            let next = self.lock_log().next;
            return Err(self.failed(error, &packed, "the compressed form of the events", next));
        }
        // Only now: whenever the plain file exists, it is complete and the one that counts.
        fs::remove_file(&plain).map_err(WriteError::io("remove the uncompressed events"))
    }

    fn lock_log(&self) -> MutexGuard<'_, Log> {
        // A panic elsewhere while the lock was held leaves `Log` usable: it changes only after a
        // write succeeded.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: io::Error, path: &Path, lost: &str, next: u64) -> WriteError {
        if is_full(&error) {
            let intact = i64::try_from(next).unwrap_or(i64::MAX) - 1;
            return WriteError::Full { path: path.to_owned(), lost: lost.to_owned(), intact };
        }
        let attempt = format!("write {lost} to the run in {}", self.layout.root.display());
        WriteError::Io { attempt, source: error }
    }
}

fn describe(event: &Event) -> String {
    let mut text = format!("event {}", event.kind());
    if let Some(episode) = event.episode() {
        let _ = write!(text, " of episode {episode}");
    }
    if let Some(turn) = event.turn() {
        let _ = write!(text, ", turn {turn}");
    }
    text
}

/// How long the lock of a process that is gone is waited for: a child that it had forked and that has
/// not begun its program yet still holds it, for some milliseconds on a busy machine.
const LEFT_OVER: Duration = Duration::from_secs(5);

fn lock(layout: &Layout) -> Result<std::fs::File, WriteError> {
    let path = layout.lock();
    let attempt = || WriteError::io("open the run's lock");
    // fs_err has no `try_lock` on its own type in every version; the plain one is enough here.
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(attempt())?
        .into_file();
    let asked = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(std::fs::TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
                let gone = !holder.is_empty() && !Path::new("/proc").join(&holder).exists();
                if !gone || asked.elapsed() > LEFT_OVER {
                    let holder = match holder.as_str() {
                        "" => "another process".to_owned(),
                        pid => format!("process {pid}"),
                    };
                    return Err(WriteError::Locked { path: layout.root.clone(), holder });
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(std::fs::TryLockError::Error(e)) => return Err(attempt()(e)),
        }
    }
    // Only for the message above; a full disk must not stop a run from being taken up.
    let _ = file.set_len(0);
    let _ = (&file).write_all(std::process::id().to_string().as_bytes());
    Ok(file)
}

/// Writes a file so that it is there whole or not at all.
fn write_whole(layout: &Layout, path: &Path, what: &str, bytes: &[u8]) -> Result<(), WriteError> {
    let temporary = path.with_extension("tmp");
    let done = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    done.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        if is_full(&error) {
            return WriteError::Full { path: path.to_owned(), lost: what.to_owned(), intact: -1 };
        }
        WriteError::io(format!("write {what} in {}", layout.root.display()))(error)
    })
}

fn pack(plain: &Path, packed: &Path) -> io::Result<()> {
    let mut source = fs::File::open(plain)?;
    let mut encoder = zstd::Encoder::new(fs::File::create(packed)?, 9)?;
    encoder.include_checksum(true)?;
    io::copy(&mut source, &mut encoder)?;
    encoder.finish()?.sync_all()
}

/// Makes `events.jsonl` the only form. See `RunWriter::close` for why the plain file wins.
fn unpack(layout: &Layout) -> Result<(), WriteError> {
    let (plain, packed) = (layout.events(), layout.packed());
    if !packed.exists() {
        return Ok(());
    }
    if !plain.exists() {
        let temporary = plain.with_extension("jsonl.tmp");
        let done = fs::File::open(&packed)
            .and_then(|file| {
                let mut target = fs::File::create(&temporary)?;
                io::copy(&mut zstd::Decoder::new(file)?, &mut target)?;
                target.sync_all()
            })
            .and_then(|()| fs::rename(&temporary, &plain));
        if let Err(error) = done {
            let _ = fs::remove_file(&temporary);
            if is_full(&error) {
                let lost = "nothing: the compressed events stay".to_owned();
                return Err(WriteError::Full { path: plain, lost, intact: -1 });
            }
            return Err(ReadError::Io { path: layout.root.clone(), source: error }.into());
        }
    }
    fs::remove_file(&packed).map_err(WriteError::io("remove the compressed events"))
}
