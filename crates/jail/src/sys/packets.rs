//! Packets over a Unix socket, with descriptors: how a fork server is spoken to.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::call::check;

/// Most descriptors in one packet; the kernel allows 253.
pub(crate) const MOST_DESCRIPTORS: usize = 128;
/// Longest packet, bytes.
const LONGEST: usize = 4096;
/// Bytes for the control message of [`MOST_DESCRIPTORS`].
const CONTROL: usize = 1024;

/// Aligned as the kernel wants control messages.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// A pair of connected sockets that keep packets whole and are closed on exec. Safe in threaded processes.
pub(crate) fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which we own afterwards.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        check(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

fn header(part: &mut libc::iovec, control: &mut Control, control_bytes: usize) -> libc::msghdr {
    // SAFETY: all zeroes is a valid msghdr: null pointers and lengths of nothing.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    if control_bytes > 0 {
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control_bytes as _;
    }
    header
}

/// Sends one packet, which must not be empty. Safe in threaded processes.
pub(crate) fn send_packet(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if bytes.is_empty() || bytes.len() > LONGEST || fds.len() > MOST_DESCRIPTORS {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let data_bytes = size_of_val(numbers.as_slice()) as u32;
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; CONTROL]);
    // SAFETY: plain arithmetic.
    let space = unsafe { libc::CMSG_SPACE(data_bytes) } as usize;
    let space = if fds.is_empty() { 0 } else { space };
    let header = header(&mut part, &mut control, space);
    // SAFETY: the control message lies in `control`, which is large enough for so many descriptors;
    // everything the header points to outlives the call, and nothing of it is written to by sendmsg.
    let sent = unsafe {
        if space > 0 {
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(data_bytes) as _;
            let data = libc::CMSG_DATA(message);
            std::ptr::copy_nonoverlapping(numbers.as_ptr().cast(), data, data_bytes as usize);
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
    };
    check(sent as i32).map(drop)
}

/// The next packet with its descriptors, closed on exec; `None` when the other end is closed. Waits for
/// it. Safe in threaded processes.
pub(crate) fn receive_packet(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; LONGEST];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; CONTROL]);
    let mut header = header(&mut part, &mut control, CONTROL);
    let received = loop {
        // SAFETY: everything the header points to outlives the call and may be written to.
        let received =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
        match check(received as i32) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // So it is told that somebody was killed in the middle of a conversation.
            Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel filled in the control messages; each descriptor in there is new and ours.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS
            {
                let bytes = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(message);
                for at in (0..bytes).step_by(size_of::<RawFd>()) {
                    let mut fd = [0; size_of::<RawFd>()];
                    std::ptr::copy_nonoverlapping(data.add(at), fd.as_mut_ptr(), fd.len());
                    fds.push(OwnedFd::from_raw_fd(RawFd::from_ne_bytes(fd)));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    if received == 0 {
        return Ok(None);
    }
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    bytes.truncate(received as usize);
    Ok(Some((bytes, fds)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn packets_keep_their_boundaries_and_descriptors() {
        let (ours, theirs) = packet_pair().unwrap();
        let (read, write) = crate::sys::pipe().unwrap();
        send_packet(ours.as_fd(), b"one", &[write.as_fd(), read.as_fd()]).unwrap();
        send_packet(ours.as_fd(), b"two", &[]).unwrap();
        drop(write);
        let (bytes, mut fds) = receive_packet(theirs.as_fd()).unwrap().unwrap();
        assert_eq!((bytes.as_slice(), fds.len()), (b"one".as_slice(), 2));
        File::from(fds.remove(0)).write_all(b"through").unwrap();
        let mut said = String::new();
        File::from(fds.remove(0)).read_to_string(&mut said).unwrap();
        assert_eq!(said, "through");
        let (bytes, fds) = receive_packet(theirs.as_fd()).unwrap().unwrap();
        assert_eq!((bytes.as_slice(), fds.len()), (b"two".as_slice(), 0));
        drop(ours);
        assert!(receive_packet(theirs.as_fd()).unwrap().is_none());
    }
}
