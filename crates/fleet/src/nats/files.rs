//! Content-addressed files in NATS: contents too large for a message, or shared by many jobs.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::link::Link;

/// Bytes of a part. NATS accepts messages of 1 MiB by default.
const PART: usize = 512 << 10;
/// Bytes of a content, at most, compressed or not.
const MOST: usize = 256 << 20;
/// How long an uploaded content counts as present; NATS keeps it for days.
const TRUSTED: Duration = Duration::from_hours(1);
/// Remembered uploads, at most.
const REMEMBERED: usize = 4096;
/// Tries per part, and the pause between two.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// A reference to a content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRef {
    /// BLAKE3 of the content, hexadecimal.
    hash: String,
    /// Number of messages that hold its compressed bytes.
    parts: usize,
}

/// Why a content could not be stored or fetched.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    #[error("failed to transfer a file over NATS: it is larger than {} MiB", MOST >> 20)]
    TooLarge,
    #[error("failed to fetch file {hash} from NATS: part {part} is missing: {why}")]
    Missing { hash: String, part: usize, why: String },
    #[error("failed to fetch file {hash} from NATS: its bytes do not match its hash")]
    Changed { hash: String },
    #[error("failed to store a file in NATS: {0}")]
    Refused(String),
}

/// The contents that this process has stored in NATS.
#[derive(Debug, Default)]
pub(crate) struct Files {
    put: Mutex<HashMap<String, (FileRef, Instant)>>,
}

impl Files {
    /// Stores a content, unless it is there already.
    pub(crate) async fn put(&self, link: &Link, content: &[u8]) -> Result<FileRef, FileError> {
        if content.len() > MOST {
            return Err(FileError::TooLarge);
        }
        let hash = blake3::hash(content).to_hex().to_string();
        if let Some(known) = self.known(&hash) {
            return Ok(known);
        }
        let packed = zstd::encode_all(content, 3);
        let packed = Bytes::from(packed.map_err(|error| FileError::Refused(error.to_string()))?);
        let parts = packed.len().div_ceil(PART);
        for part in 0..parts {
            let bytes = packed.slice(part * PART..packed.len().min((part + 1) * PART));
            let subject = link.file_subject(&hash, part);
            link.publish(subject, bytes, None).await.map_err(FileError::Refused)?;
        }
        let file = FileRef { hash, parts };
        let mut put = self.put.lock().unwrap_or_else(PoisonError::into_inner);
        if put.len() >= REMEMBERED {
            put.clear();
        }
        put.insert(file.hash.clone(), (file.clone(), Instant::now()));
        Ok(file)
    }

    fn known(&self, hash: &str) -> Option<FileRef> {
        let put = self.put.lock().unwrap_or_else(PoisonError::into_inner);
        put.get(hash).filter(|(_, since)| since.elapsed() < TRUSTED).map(|(file, _)| file.clone())
    }
}

/// Fetches a content and checks its size and hash: any client of NATS may have written it.
pub(crate) async fn get(
    link: &Link,
    stream: &Stream,
    file: &FileRef,
) -> Result<Vec<u8>, FileError> {
    let FileRef { hash, parts } = file;
    // The hash becomes a token of a subject.
    if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(FileError::Changed { hash: "with a malformed hash".to_owned() });
    }
    if *parts > MOST / PART {
        return Err(FileError::TooLarge);
    }
    let mut packed = Vec::new();
    for part in 0..*parts {
        packed.extend_from_slice(&get_part(link, stream, hash, part).await?);
    }
    let mut content = Vec::new();
    let changed = || FileError::Changed { hash: hash.clone() };
    let unpacked = zstd::Decoder::new(packed.as_slice()).map_err(|_| changed())?;
    unpacked.take(MOST as u64 + 1).read_to_end(&mut content).map_err(|_| changed())?;
    if content.len() > MOST {
        return Err(FileError::TooLarge);
    }
    if blake3::hash(&content).to_hex().as_str() != hash {
        return Err(changed());
    }
    Ok(content)
}

async fn get_part(
    link: &Link,
    stream: &Stream,
    hash: &str,
    part: usize,
) -> Result<Bytes, FileError> {
    let mut tries = 0;
    loop {
        match stream.direct_get_last_for_subject(link.file_subject(hash, part)).await {
            Ok(message) => return Ok(message.payload),
            // A replica may lag, and NATS may be away for a moment.
            Err(_) if tries < TRIES => tries += 1,
            Err(error) => {
                let why = error.to_string();
                return Err(FileError::Missing { hash: hash.to_owned(), part, why });
            }
        }
        tokio::time::sleep(PAUSE * tries).await;
    }
}
