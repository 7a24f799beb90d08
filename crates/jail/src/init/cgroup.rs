//! A control group of its own for one jail, version 2 or 1, where this machine allows one.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::freezer::Mechanism;
use crate::spec::Limits;

/// Prefix of our groups; the rest is the supervisor's process id.
const PREFIX: &str = "warpwright-";

/// The groups made for one jail: one folder (version 2), or one per controller (version 1).
#[derive(Default)]
pub(super) struct Group {
    unified: Option<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
    freezer: Option<PathBuf>,
}

impl Group {
    /// Makes what can be made and sets the limits; what cannot is simply absent.
    pub(super) fn create(limits: &Limits) -> Self {
        let mut group = Self::default();
        let (Ok(own), Ok(mounts)) = (
            fs_err::read_to_string("/proc/self/cgroup"),
            fs_err::read_to_string("/proc/self/mountinfo"),
        ) else {
            return group;
        };
        let hierarchies = hierarchies(&own, &mounts);
        for hierarchy in &hierarchies {
            if hierarchy.version2 {
                if let Some(folder) = hierarchy.create(|folder| set_unified(folder, limits)) {
                    group.unified = Some(folder);
                }
            } else if hierarchy.has("memory") && group.memory.is_none() {
                // Without a bound too: it measures.
                group.memory =
                    hierarchy.create(|folder| set_memory_v1(folder, limits.memory_bytes));
            } else if hierarchy.has("pids") && group.pids.is_none() {
                group.pids = hierarchy.create(|folder| {
                    fs_err::write(folder.join("pids.max"), limits.processes.to_string())
                });
            }
            if hierarchy.has("freezer") && group.freezer.is_none() {
                group.freezer = hierarchy
                    .create(|folder| fs_err::metadata(folder.join("freezer.state")).map(drop));
            }
            if hierarchy.has("cpuacct") && group.cpu.is_none() {
                group.cpu = hierarchy
                    .create(|folder| fs_err::metadata(folder.join("cpuacct.usage")).map(drop));
            }
        }
        group
    }

    /// Puts a process in; those it starts later follow.
    pub(super) fn add(&self, pid: i32) -> io::Result<()> {
        for folder in self.folders() {
            fs_err::write(folder.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Which kind bounds memory, if one does.
    pub(super) fn bounds_memory(&self) -> Option<&'static str> {
        match (&self.unified, &self.memory) {
            (Some(folder), _) if folder.join("memory.max").exists() => Some("cgroup v2"),
            (_, Some(_)) => Some("cgroup v1"),
            _ => None,
        }
    }

    /// Which kind bounds the number of processes, if one does.
    pub(super) fn bounds_processes(&self) -> Option<&'static str> {
        match (&self.unified, &self.pids) {
            (Some(folder), _) if folder.join("pids.max").exists() => Some("cgroup v2"),
            (_, Some(_)) => Some("cgroup v1"),
            _ => None,
        }
    }

    /// What stops the processes in it.
    pub(super) fn freezer(&self) -> Mechanism {
        match (&self.unified, &self.freezer) {
            (Some(folder), _) if folder.join("cgroup.freeze").exists() => {
                Mechanism::Unified(folder.clone())
            }
            (_, Some(folder)) => Mechanism::Freezer(folder.clone()),
            _ => Mechanism::Signals { supervisor: std::process::id() as i32 },
        }
    }

    /// Has the kernel killed something here for want of memory?
    pub(super) fn out_of_memory(&self) -> bool {
        let counter = |file: PathBuf| {
            fs_err::read_to_string(file).ok().and_then(|text| field(&text, "oom_kill")).unwrap_or(0)
                > 0
        };
        self.unified.as_ref().is_some_and(|folder| counter(folder.join("memory.events")))
            || self.memory.as_ref().is_some_and(|folder| counter(folder.join("memory.oom_control")))
    }

    /// Anonymous and shared memory now, in bytes; page cache is left out, since it gives way.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        let (folder, fields) = match (&self.unified, &self.memory) {
            (Some(folder), _) => (folder, ["anon", "shmem"]),
            (_, Some(folder)) => (folder, ["total_rss", "total_shmem"]),
            _ => return None,
        };
        let text = fs_err::read_to_string(folder.join("memory.stat")).ok()?;
        Some(field(&text, fields[0])? + field(&text, fields[1]).unwrap_or(0))
    }

    /// CPU time used by all processes so far.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        if let Some(folder) = &self.unified
            && let Ok(text) = fs_err::read_to_string(folder.join("cpu.stat"))
        {
            return field(&text, "usage_usec").map(Duration::from_micros);
        }
        let text = fs_err::read_to_string(self.cpu.as_ref()?.join("cpuacct.usage")).ok()?;
        text.trim().parse().ok().map(Duration::from_nanos)
    }

    /// Removes the groups. Their processes are dead, but may take a moment to leave.
    pub(super) fn remove(&self) {
        for folder in self.folders() {
            for _ in 0..50 {
                if fs_err::remove_dir(folder).is_ok() || !folder.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        let mut folders: Vec<&PathBuf> =
            [&self.unified, &self.memory, &self.pids, &self.cpu, &self.freezer]
                .into_iter()
                .flatten()
                .collect();
        folders.dedup();
        folders.into_iter()
    }
}

/// `name value` in a file of such lines.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok()).flatten()
    })
}

fn set_unified(folder: &Path, limits: &Limits) -> io::Result<()> {
    if let Some(bytes) = limits.memory_bytes
        // Half of it is better than nothing: the supervisor then keeps the memory bound.
        && folder.join("memory.max").exists()
    {
        fs_err::write(folder.join("memory.max"), bytes.to_string())?;
        // Kernels without swap accounting lack these two.
        drop(fs_err::write(folder.join("memory.swap.max"), "0"));
        drop(fs_err::write(folder.join("memory.oom.group"), "1"));
    }
    fs_err::write(folder.join("pids.max"), limits.processes.to_string())
}

fn set_memory_v1(folder: &Path, bytes: Option<u64>) -> io::Result<()> {
    let Some(bytes) = bytes else { return fs_err::metadata(folder.join("memory.stat")).map(drop) };
    fs_err::write(folder.join("memory.limit_in_bytes"), bytes.to_string())?;
    // Memory and swap together; absent without swap accounting.
    drop(fs_err::write(folder.join("memory.memsw.limit_in_bytes"), bytes.to_string()));
    Ok(())
}

/// One mounted hierarchy and where this process stands in it.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version2: bool,
    controllers: Vec<String>,
    /// Where it is mounted.
    root: PathBuf,
    /// This process's own folder, beneath `root`.
    own: PathBuf,
}

impl Hierarchy {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|known| known == controller)
    }

    /// Makes our folder as deep as possible: beneath this process's own, else beneath an ancestor.
    fn create(&self, set: impl Fn(&Path) -> io::Result<()>) -> Option<PathBuf> {
        let mut parent = self.own.as_path();
        loop {
            if parent.exists() {
                sweep(parent);
                if self.version2 {
                    // Refused where processes live in the parent; then the next one up is tried.
                    // Both at once: `pids` alone would be granted there, and make every child
                    // unfit to hold processes.
                    drop(fs_err::write(parent.join("cgroup.subtree_control"), "+memory +pids"));
                }
                let folder = parent.join(format!("{PREFIX}{}", std::process::id()));
                if folder.is_dir() || fs_err::create_dir(&folder).is_ok() {
                    let usable = set(&folder).is_ok()
                        && (!self.version2
                            || holds_processes(&folder)
                                && fs_err::OpenOptions::new()
                                    .write(true)
                                    .open(parent.join("cgroup.procs"))
                                    .is_ok());
                    if usable {
                        return Some(folder);
                    }
                    drop(fs_err::remove_dir(&folder));
                }
            }
            if parent == self.root {
                return None;
            }
            parent = parent.parent()?;
        }
    }
}

/// Whether a version 2 group may hold processes: beneath a group that holds some itself, a new one
/// can be `domain invalid`. Kernels before 4.14 have no such kinds.
fn holds_processes(folder: &Path) -> bool {
    fs_err::read_to_string(folder.join("cgroup.type")).map_or(true, |kind| kind.trim() == "domain")
}

/// Removes groups whose supervisor was killed before it could.
fn sweep(parent: &Path) {
    let Ok(entries) = fs_err::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists() {
            // What is frozen in a version 1 group outlives even SIGKILL until it goes on.
            drop(fs_err::write(entry.path().join("freezer.state"), "THAWED"));
            drop(fs_err::remove_dir(entry.path()));
        }
    }
}

/// Joins `/proc/self/cgroup` with `/proc/self/mountinfo`.
fn hierarchies(own: &str, mounts: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mounts.lines() {
        // id parent device root mountpoint options [optional...] - type source super-options
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (Some(shown), Some(point), Some(kind)) = (left.get(3), left.get(4), right.first())
        else {
            continue;
        };
        let version2 = match *kind {
            "cgroup2" => true,
            "cgroup" => false,
            _ => continue,
        };
        let options: Vec<&str> =
            right.get(2).map(|text| text.split(',').collect()).unwrap_or_default();
        let entry = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let matches = if version2 {
                controllers.is_empty()
            } else {
                !controllers.is_empty()
                    && controllers.split(',').all(|name| options.contains(&name))
            };
            matches.then(|| (controllers.split(',').map(String::from).collect::<Vec<_>>(), path))
        });
        let Some((controllers, path)) = entry else { continue };
        // In a container the mount may show only a part of the hierarchy.
        let relative = Path::new(path).strip_prefix(shown).unwrap_or_else(|_| Path::new(""));
        let root = PathBuf::from(point);
        if found.iter().all(|known| known.root != root) {
            let own =
                if relative.as_os_str().is_empty() { root.clone() } else { root.join(relative) };
            found.push(Hierarchy { version2, controllers, root, own });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_v1_and_v2_paths_of_the_process_are_found() {
        let own = "8:pids:/\n4:memory:/a/b\n1:cpu,cpuacct:/x\n0::/user.slice/s.scope\n";
        let mounts = "\
30 1 0:20 / /sys rw - sysfs sysfs rw
31 30 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 30 0:28 /user.slice /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
        let found = hierarchies(own, mounts);
        let owns: Vec<&str> = found.iter().filter_map(|one| one.own.to_str()).collect();
        assert_eq!(
            owns,
            [
                "/sys/fs/cgroup/memory/a/b",
                "/sys/fs/cgroup/cpu,cpuacct/x",
                "/sys/fs/cgroup/unified/s.scope"
            ]
        );
        assert!(found[2].version2 && found[1].has("cpuacct"));
    }

    #[test]
    fn field_names_are_matched_whole() {
        assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"), Some(3));
        assert_eq!(field("oom 3\n", "oom_kill"), None);
    }
}
