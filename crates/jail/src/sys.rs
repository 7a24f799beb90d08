//! The system calls the jail makes, each behind one small safe function.
//!
//! All `unsafe` of the crate lives in the modules below. The functions run in single-threaded processes (the jail's
//! helper after re-execution, or a fork of a process with one thread), except where stated.
#![expect(unsafe_code, reason = "system calls that std does not wrap")]

mod call;
mod descriptors;
mod mounts;
mod namespaces;
mod packets;
mod processes;
mod rights;
mod seclude;

pub(crate) use self::call::{attempt, c_string};
pub(crate) use self::descriptors::{
    adopt, close, duplicate_from, duplicate_onto, give_stream, is_write_end, keep_open,
    memory_file, pipe, poll_readable, set_close_on_exec,
};
pub(crate) use self::mounts::{
    chroot, mount, move_mount, open_tree, pivot_root, set_mount_attributes, unmount,
};
pub(crate) use self::namespaces::{raise_loopback, set_host_name};
pub(crate) use self::packets::{MOST_DESCRIPTORS, packet_pair, receive_packet, send_packet};
pub(crate) use self::processes::{
    Ended, Fork, children_peak_bytes, clone_process, exec, exit_now, fork, ignore_signal, kill,
    lower_priority, new_session, pidfd_open, pidfd_signal, reset_signals, wait_any,
};
pub(crate) use self::rights::{
    become_user, drop_bounding_capabilities, drop_capabilities, effective_gid, effective_uid,
    limit, load_filter, prctl, set_umask,
};
pub(crate) use self::seclude::seclude;
