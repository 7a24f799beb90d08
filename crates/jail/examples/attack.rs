//! What jailed code might try, one action per run: the jail's tests start this inside, and outside as the
//! positive control. Exit code 0: it worked; 1: it was refused, with the reason on stdout.
#![expect(unsafe_code, reason = "attacks are system calls")]
#![expect(clippy::print_stdout, reason = "a program for tests")]

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long what the jail should end lives at most.
const LIFETIME: Duration = Duration::from_mins(10);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |index: usize| arguments.get(index).map_or("", String::as_str);
    let number = |index: usize| text(index).parse::<u64>().unwrap_or(0);
    let result = match text(0) {
        "connect" => {
            TcpStream::connect(("127.0.0.1", number(1) as u16)).map(|_| "connected".into())
        }
        "connect-own" => connect_own(),
        "connect-unix" => connect_unix(Path::new(text(1))),
        "read" => fs_err::read_to_string(text(1)),
        "write" => fs_err::write(text(1), "written").map(|()| "written".into()),
        "list" => list(Path::new(text(1))),
        "environment" => Ok(std::env::vars()
            .map(|(key, value)| format!("{key}={value}"))
            .collect::<Vec<_>>()
            .join("\n")),
        "descriptors" => descriptors(),
        "read-descriptor" => fs_err::read_to_string(format!("/proc/self/fd/{}", text(1))),
        "fork" => fork_until_refused(number(1)),
        "memory" => allocate(number(1), number(2)),
        "memory-tree" => allocate_in_children(number(1), number(2), number(3)),
        "fill" => fill(Path::new(text(1)), number(2)),
        "daemon" => daemon(Path::new(text(1))),
        "wake-itself" => wake_itself(Path::new(text(1))),
        "timer" => make_timer(text(1)),
        "deaf" => Ok(deaf()),
        "burn" => burn(number(1)),
        "flood" => flood(),
        "sleep" => {
            std::thread::sleep(Duration::from_millis(number(1)));
            Ok("slept".into())
        }
        "kill" => {
            check(unsafe { libc::kill(number(1) as i32, libc::SIGKILL) }).map(|_| "killed".into())
        }
        "ptrace" => ptrace_child(),
        "mount" => mount(Path::new(text(1))),
        "unshare" => check(unsafe { libc::unshare(number(1) as i32) }).map(|_| "unshared".into()),
        "set-uid" => set_uid(Path::new(text(1))),
        "processes" => processes(),
        "shared-memory" => shared_memory(),
        "memory-file" => {
            check(unsafe { libc::memfd_create(c"x".as_ptr(), 0) }).map(|_| "created".into())
        }
        "standard-output" => fs_err::OpenOptions::new()
            .write(true)
            .open("/dev/stdout")
            .and_then(|mut file| file.write_all(b"reopened"))
            .map(|()| String::new()),
        "name" => fs_err::write(format!("/proc/self/task/{}/comm", std::process::id()), "named")
            .map(|()| "named".into()),
        "abort" => std::process::abort(),
        "exit" => std::process::exit(number(1) as i32),
        other => Err(io::Error::other(format!("no action {other:?}"))),
    };
    match result {
        Ok(words) => println!("{words}"),
        Err(error) => {
            println!("{error}");
            std::process::exit(1);
        }
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Talks to itself over loopback.
fn connect_own() -> io::Result<String> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    TcpStream::connect(listener.local_addr()?).map(|_| "connected".into())
}

fn connect_unix(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(b"ping")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn list(path: &Path) -> io::Result<String> {
    let mut names: Vec<String> = fs_err::read_dir(path)?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names.join(" "))
}

fn shared_memory() -> io::Result<String> {
    let path = format!("/dev/shm/attack-{}-{:?}", std::process::id(), std::time::SystemTime::now());
    fs_err::write(&path, vec![1; 1 << 20])?;
    fs_err::remove_file(path)?;
    Ok("written".into())
}

fn descriptors() -> io::Result<String> {
    let mut open: Vec<i32> = fs_err::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    // The listing's own descriptor is closed by now.
    open.retain(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0);
    open.sort_unstable();
    Ok(format!("{open:?}"))
}

/// Starts children that stay, at most `most`; says how many there were.
fn fork_until_refused(most: u64) -> io::Result<String> {
    let mut children = Vec::new();
    let mut refusal = None;
    while (children.len() as u64) < most {
        match check(unsafe { libc::fork() }) {
            Ok(0) => loop {
                std::thread::sleep(Duration::from_mins(1));
            },
            Ok(pid) => children.push(pid),
            Err(error) => {
                refusal = Some(error);
                break;
            }
        }
    }
    for &pid in &children {
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
    match refusal {
        None => Ok(format!("{}", children.len())),
        Some(error) => Err(io::Error::other(format!("{} {error}", children.len()))),
    }
}

/// Holds memory for this many milliseconds, or for as long as the jail needs to measure it.
fn allocate(bytes: u64, milliseconds: u64) -> io::Result<String> {
    let mut held: Vec<Vec<u8>> = Vec::new();
    let piece = 8 << 20;
    for _ in 0..bytes.div_ceil(piece) {
        let mut memory = Vec::new();
        memory.try_reserve_exact(piece as usize).map_err(io::Error::other)?;
        // Not zero: zeroed pages need not exist.
        memory.resize(piece as usize, 1);
        held.push(memory);
    }
    std::thread::sleep(Duration::from_millis(milliseconds.max(300)));
    Ok(format!("held {}", held.iter().map(Vec::len).sum::<usize>()))
}

fn allocate_in_children(count: u64, bytes: u64, milliseconds: u64) -> io::Result<String> {
    for _ in 0..count {
        if check(unsafe { libc::fork() })? == 0 {
            let worked = allocate(bytes, milliseconds).is_ok();
            std::process::exit(i32::from(!worked));
        }
    }
    let mut failed = 0;
    for _ in 0..count {
        let mut status = 0;
        unsafe { libc::wait(&raw mut status) };
        failed += i32::from(status != 0);
    }
    if failed == 0 {
        Ok("all held".into())
    } else {
        Err(io::Error::other(format!("{failed} failed")))
    }
}

fn fill(path: &Path, bytes: u64) -> io::Result<String> {
    // The signal of the file size limit would end this process; the error says more.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let mut file = fs_err::File::create(path)?;
    let piece = vec![1; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&piece)?;
    }
    Ok("filled".into())
}

/// Makes a timer of this kind.
fn make_timer(kind: &str) -> io::Result<String> {
    let mut timer: libc::timer_t = std::ptr::null_mut();
    let none = std::ptr::null_mut();
    check(match kind {
        "descriptor" => unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, 0) },
        _ => unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, none, &raw mut timer) },
    })?;
    Ok("made".into())
}

/// Writes a heartbeat, and has a timer send it SIGCONT every five milliseconds.
fn wake_itself(heartbeat: &Path) -> io::Result<String> {
    extern "C" fn nothing(_: libc::c_int) {}
    // Newer kernels stop a timer whose signal is ignored, as SIGCONT is without a handler.
    let handler = nothing as extern "C" fn(libc::c_int);
    if unsafe { libc::signal(libc::SIGCONT, handler as libc::sighandler_t) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = libc::SIGCONT;
    let mut timer: libc::timer_t = std::ptr::null_mut();
    check(unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) })?;
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    let every = libc::itimerspec { it_interval: pause, it_value: pause };
    check(unsafe { libc::timer_settime(timer, 0, &raw const every, std::ptr::null_mut()) })?;
    let started = Instant::now();
    while started.elapsed() < LIFETIME {
        fs_err::write(heartbeat, format!("{:?}", started.elapsed()))?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok("woke".into())
}

/// Leaves a process behind that has a session of its own and no parent, ignores every signal it can, and
/// writes the time into a file; then stays itself.
fn daemon(heartbeat: &Path) -> io::Result<String> {
    if check(unsafe { libc::fork() })? == 0 {
        unsafe { libc::setsid() };
        if check(unsafe { libc::fork() })? == 0 {
            ignore_signals();
            let started = Instant::now();
            while started.elapsed() < LIFETIME {
                fs_err::write(heartbeat, format!("{:?}", started.elapsed()))?;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        std::process::exit(0);
    }
    Ok(deaf())
}

fn ignore_signals() {
    for signal in 1..=64 {
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn deaf() -> String {
    ignore_signals();
    println!("deaf");
    std::thread::sleep(LIFETIME);
    "slept".into()
}

fn burn(threads: u64) -> io::Result<String> {
    for _ in 0..threads {
        if check(unsafe { libc::fork() })? == 0 {
            let started = Instant::now();
            while started.elapsed() < LIFETIME {}
            std::process::exit(0);
        }
    }
    std::thread::sleep(LIFETIME);
    Ok("burnt".into())
}

fn flood() -> io::Result<String> {
    let line = [b'x'; 4096];
    for _ in 0..(256 << 20) / line.len() {
        io::stdout().write_all(&line)?;
    }
    println!("the end");
    Ok(String::new())
}

fn ptrace_child() -> io::Result<String> {
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        std::thread::sleep(Duration::from_secs(5));
        std::process::exit(0);
    }
    let attached = unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0) };
    let error = io::Error::last_os_error();
    unsafe { libc::kill(pid, libc::SIGKILL) };
    if attached < 0 { Err(error) } else { Ok("attached".into()) }
}

/// Mounts where it cannot be seen by others, as root may.
fn mount(target: &Path) -> io::Result<String> {
    let target = std::ffi::CString::new(target.as_os_str().as_encoded_bytes())?;
    unsafe {
        // Refused inside; outside it keeps the mount from the host.
        libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUSER);
        check(libc::mount(
            c"tmpfs".as_ptr(),
            target.as_ptr(),
            c"tmpfs".as_ptr(),
            0,
            std::ptr::null(),
        ))?;
    }
    Ok("mounted".into())
}

fn set_uid(path: &Path) -> io::Result<String> {
    fs_err::write(path, "#!/bin/sh\n")?;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o4755))?;
    Ok("set".into())
}

fn processes() -> io::Result<String> {
    let mut names: Vec<String> = fs_err::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| fs_err::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| !line.is_empty())
        .collect();
    names.sort();
    Ok(names.join("\n"))
}
