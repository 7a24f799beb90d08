//! What this process knows of precompiled headers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The precompiled headers known to this process, by key.
#[derive(Debug, Default)]
pub(crate) struct Precompiled {
    pub(crate) known: Mutex<BTreeMap<String, Arc<Mutex<Known>>>>,
}

/// What is known of one header.
#[derive(Debug, Default)]
pub(crate) enum Known {
    #[default]
    Nothing,
    /// First needed by the build in this folder.
    NeededBy(PathBuf),
    /// Its path; `None` if it cannot be made.
    Made(Option<PathBuf>),
}
