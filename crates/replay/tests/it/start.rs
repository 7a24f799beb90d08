//! The start, which needs no GPU to fail.

use std::os::fd::AsFd;

use crate::replayer::Replayer;

fn arguments(device: &str) -> Vec<String> {
    ["--device", device, "--arena-bytes", "4096"].map(str::to_owned).to_vec()
}

#[test]
fn missing_device_is_a_typed_error() {
    let memory = tempfile::tempfile().unwrap();
    let mut replayer = Replayer::start(memory.as_fd(), &arguments("99"));
    let answer = replayer.greet();
    assert_eq!(answer["error"]["kind"], "cuda", "{answer}");
    let (status, printed) = replayer.close();
    assert_eq!((status.code(), printed.as_str()), (Some(1), ""));
}

#[test]
fn closed_socket_ends_the_process() {
    let memory = tempfile::tempfile().unwrap();
    let replayer = Replayer::start(memory.as_fd(), &arguments("0"));
    let (status, printed) = replayer.close();
    assert_eq!((status.code(), printed.as_str()), (Some(0), ""));
}
