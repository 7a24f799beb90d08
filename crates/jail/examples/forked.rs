//! A fork server for the jail's tests: full of what its forks must not have. They execute the program that
//! they are told, or with the argument `as-is` look at what they are themselves.
#![expect(unsafe_code, reason = "it ignores and blocks signals")]
#![expect(clippy::print_stdout, reason = "a program for tests")]
#![expect(clippy::disallowed_types, reason = "forks execute what the tests name")]

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use warpwright_jail::Program;

/// Memory that the server has and its forks share, bytes.
const WARM: usize = 96 << 20;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("two-threads") {
        std::thread::spawn(|| std::thread::sleep(Duration::from_mins(1)));
    }
    let warm = std::hint::black_box(vec![1_u8; WARM]);
    let secret = fs_err::File::open("/proc/self/maps")?;
    unsafe {
        libc::umask(0o077);
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        libc::signal(libc::SIGUSR2, caught as *const () as libc::sighandler_t);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
    warpwright_jail::serve_forks(&|program| act(&program))?;
    drop((warm, secret));
    Ok(())
}

extern "C" fn caught(_: i32) {}

fn act(program: &Program) -> i32 {
    let arguments: Vec<&str> = program.args.iter().map(String::as_str).collect();
    let said = match arguments[..] {
        ["as-is", "state"] => state(),
        ["as-is", "hold", bytes, milliseconds] => {
            Ok(hold(bytes.parse().unwrap_or(0), milliseconds.parse().unwrap_or(0)))
        }
        ["as-is", "change-executable"] => change_executable(),
        _ => Err(Command::new(&program.program)
            .args(&program.args)
            .env_clear()
            .envs(&program.env)
            .exec()),
    };
    match said {
        Ok(words) => println!("{words}"),
        Err(error) => println!("{error}"),
    }
    0
}

/// What a fork could have of its parent.
fn state() -> io::Result<String> {
    let mut open: Vec<i32> = fs_err::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    open.retain(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0);
    open.sort_unstable();
    let umask = unsafe { libc::umask(0o022) };
    let status = fs_err::read_to_string("/proc/self/status")?;
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
    };
    let masks = ["SigBlk:", "SigIgn:", "SigCgt:"].map(|name| {
        // 32 and 33 are the C library's own, which lets nobody reset them.
        u64::from_str_radix(field(name), 16).unwrap_or(u64::MAX) & !(3 << 31)
    });
    let rest = ["Threads:", "CapPrm:", "NoNewPrivs:", "Seccomp:"].map(field);
    // Closed to a process that does not own itself.
    let own = fs_err::read("/proc/self/environ").is_ok();
    let cwd = std::env::current_dir()?.display().to_string();
    Ok(format!("{open:?} {cwd} {umask:03o} own {own} {masks:?} {rest:?}"))
}

fn hold(bytes: usize, milliseconds: u64) -> String {
    let memory = std::hint::black_box(vec![1_u8; bytes]);
    std::thread::sleep(Duration::from_millis(milliseconds));
    format!("held {}", memory.len())
}

/// The file that this process was started from, which lies outside.
fn change_executable() -> io::Result<String> {
    let file = std::fs::File::open("/proc/self/exe")?;
    let mode = file.metadata()?.permissions().mode();
    let told = file.set_permissions(std::fs::Permissions::from_mode(mode));
    let write = std::fs::OpenOptions::new().write(true).open("/proc/self/exe").map(drop);
    Ok(format!("{told:?} {write:?}"))
}
