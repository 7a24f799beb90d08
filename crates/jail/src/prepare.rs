//! From a [`Spec`] to a plan: everything that can be refused before a process is started.

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use crate::error::JailError;
use crate::isolation::Backend;
use crate::plan::{Plan, VERSION};
use crate::scratch::scratch_folder;
use crate::spec::{HOME, Network, Spec};

/// What a spawn needs to know of the [`Jail`](crate::Jail).
#[derive(Clone, Debug)]
pub(crate) struct Means {
    pub(crate) backend: Backend,
    pub(crate) init: PathBuf,
    pub(crate) bubblewrap: Option<PathBuf>,
}

/// Checks a specification against this host.
pub(crate) fn plan(
    means: &Means,
    spec: Spec,
    fds: Vec<(RawFd, i32)>,
    control_fd: RawFd,
) -> Result<Plan, JailError> {
    let label = spec.label.clone();
    let refuse = |reason: String| JailError::Spec { label: label.clone(), reason };
    let mut targets: Vec<i32> = fds.iter().map(|&(_, target)| target).collect();
    targets.sort_unstable();
    if targets.first().is_some_and(|&lowest| lowest < 3)
        || targets.windows(2).any(|pair| pair[0] == pair[1])
    {
        return Err(refuse("descriptor numbers must be 3 or more, and distinct".into()));
    }
    if targets.last().is_some_and(|&highest| highest >= spec.limits.open_files as i32) {
        return Err(refuse("a descriptor number lies beyond the limit on open files".into()));
    }
    if !spec.cwd.is_absolute() {
        return Err(refuse(format!(
            "the working directory {} is not absolute",
            spec.cwd.display()
        )));
    }
    let renames = means.backend != Backend::Landlock;
    if spec.network == Network::Loopback && means.backend == Backend::Landlock {
        return Err(refuse("the landlock backend cannot provide a loopback network".into()));
    }
    let mut mounts = Vec::with_capacity(spec.mounts.len());
    for mut mount in spec.mounts {
        let plain = mount.target.is_absolute()
            && mount.target != Path::new("/")
            && mount.target.components().all(|part| part != std::path::Component::ParentDir);
        if !plain {
            return Err(refuse(format!(
                "nothing can be mounted on {}: a place in the jail is an absolute path without `..`, and not `/`",
                mount.target.display()
            )));
        }
        if !renames && !mount.system && mount.source != mount.target {
            return Err(refuse(format!(
                "{} cannot be shown as {}: Landlock cannot rename",
                mount.source.display(),
                mount.target.display()
            )));
        }
        mount.source = fs_err::canonicalize(&mount.source).map_err(|cause| {
            JailError::MountSource { label: label.clone(), path: mount.source.clone(), cause }
        })?;
        mounts.push(mount);
    }
    // The last word on a target counts; parents come before what lies in them.
    mounts.reverse();
    mounts.sort_by(|a, b| a.target.cmp(&b.target));
    mounts.dedup_by(|later, first| later.target == first.target);
    for mount in &mounts {
        // A mount point inside another mount must exist there: none is made in a folder of the host.
        let around = mounts.iter().filter(|other| {
            mount.target != other.target && mount.target.starts_with(&other.target)
        });
        if let Some(around) = around.max_by_key(|other| other.target.as_os_str().len())
            && let Ok(rest) = mount.target.strip_prefix(&around.target)
            && !around.source.join(rest).exists()
        {
            return Err(refuse(format!(
                "{} does not exist in {}, so nothing can be mounted there",
                mount.target.display(),
                around.source.display()
            )));
        }
    }
    let (mut env, mut cwd, mut scratch) = (spec.env, spec.cwd, None);
    if !renames {
        let folder = scratch_folder().map_err(|cause| JailError::Start {
            label: label.clone(),
            program: means.init.clone(),
            cause,
        })?;
        for (_, value) in &mut env {
            if value == "/tmp" {
                *value = folder.join("tmp").display().to_string();
            } else if value == HOME {
                *value = folder.join("home").display().to_string();
            }
        }
        if cwd == Path::new("/tmp") {
            cwd = folder.join("tmp");
        }
        scratch = Some(folder);
    }
    Ok(Plan {
        version: VERSION,
        backend: means.backend,
        label: spec.label,
        program: spec.program,
        args: spec.args,
        env,
        cwd,
        mounts,
        symlinks: spec.symlinks,
        limits: spec.limits,
        fds,
        gpu: spec.gpu,
        network: spec.network,
        control_fd,
        init: means.init.clone(),
        bubblewrap: means.bubblewrap.clone(),
        scratch,
        handover: None,
    })
}
