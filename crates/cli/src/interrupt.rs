//! Ctrl-C and termination signals: the first stops all work and leaves an intact record, the second
//! ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

/// Set when the user wants to stop.
pub(crate) fn watch(printer: Printer) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let handler = move || {
        if flag.swap(true, Ordering::SeqCst) {
            // Jails die with this process; the record is whole up to its last event.
            std::process::exit(i32::from(exit::INTERRUPTED));
        }
        printer.say("stopping when the work in progress is done; interrupt again to stop at once");
    };
    ctrlc::set_handler(handler).map_err(|error| {
        Failure::infrastructure(format!("failed to install the interrupt handler: {error}"), None)
    })?;
    Ok(stop)
}
