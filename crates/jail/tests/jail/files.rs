//! The file system that jailed code sees, and the files that it can change.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use warpwright_jail::{Access, Backend, JailError, Mount};
use warpwright_test_support::{Need, missing};

use crate::support::{
    assert_refused, assert_worked, attack, folder, inside, is_root, jails, namespaces, outside,
};

#[test]
fn read_only_paths_cannot_be_written() {
    let (_guard, folder) = folder();
    let file = folder.join("file").display().to_string();
    assert!(outside(&["write", &file]).0);
    for (backend, jail) in jails() {
        let words = ["Read-only file system", "Permission denied"];
        assert_refused(
            backend,
            &inside(&jail, attack(["write", &file]).read_only(&folder)),
            &words,
        );
        assert_worked(backend, &inside(&jail, attack(["read", &file]).read_only(&folder)));
        assert_worked(backend, &inside(&jail, attack(["write", &file]).read_write(&folder)));
        for path in [
            "/usr/written",
            "/etc/written",
            "/written",
            "/dev/written",
            "/proc/sys/kernel/hostname",
        ] {
            assert_refused(backend, &inside(&jail, attack(["write", path])), &words);
        }
    }
}

#[test]
fn unmounted_paths_are_invisible() {
    let (_guard, folder) = folder();
    let (named, secret) = (folder.join("named"), folder.join("secret"));
    for path in [&named, &secret] {
        fs_err::write(path, "content").expect("a file");
    }
    let secret = secret.display().to_string();
    assert!(outside(&["read", &secret]).0);
    for (backend, jail) in jails() {
        let words = ["No such file", "Permission denied"];
        assert_refused(
            backend,
            &inside(&jail, attack(["read", &secret]).read_only(&named)),
            &words,
        );
        assert_refused(backend, &inside(&jail, attack(["list", "/root"])), &words);
        assert_refused(backend, &inside(&jail, attack(["read", "/etc/shadow"])), &words);
        // /proc/1/root would be a way round, were process 1 not ours and out of reach.
        let round = format!("/proc/1/root{secret}");
        assert_refused(backend, &inside(&jail, attack(["read", &round])), &words);
    }
}

#[test]
fn private_folder_of_the_caller_can_be_mounted() {
    // As in a home: closed to others, and the parents too.
    let (_guard, folder) = folder();
    let closed = folder.join("closed");
    let inner = closed.join("inner");
    fs_err::create_dir_all(&inner).expect("folders");
    fs_err::write(inner.join("file"), "content").expect("a file");
    for (path, mode) in [(inner.join("file"), 0o600), (inner.clone(), 0o700), (closed, 0o700)] {
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }
    let file = inner.join("file").display().to_string();
    let new = inner.join("new").display().to_string();
    let owner = fs_err::metadata(&inner).expect("its owner").uid();
    for (backend, jail) in jails() {
        assert_eq!(
            assert_worked(backend, &inside(&jail, attack(["read", &file]).read_only(&inner))),
            "content"
        );
        assert_worked(backend, &inside(&jail, attack(["write", &new]).read_write(&inner)));
        // What was made inside belongs to the caller, and the next jail can change it.
        for path in [&new, &file] {
            assert_eq!(
                fs_err::metadata(path).expect("its owner").uid(),
                owner,
                "{}",
                backend.name()
            );
        }
        assert_worked(backend, &inside(&jail, attack(["write", &new]).read_write(&inner)));
        fs_err::remove_file(&new).expect("removal");
    }
}

#[test]
fn mount_can_have_another_target_path() {
    let (_guard, folder) = folder();
    fs_err::write(folder.join("file"), "content").expect("a file");
    let mount = || Mount::new(&folder, "/workspace", Access::ReadOnly);
    for (backend, jail) in jails() {
        let spec = attack(["read", "/workspace/file"]).mount(mount()).cwd("/workspace");
        if backend == Backend::Landlock {
            assert!(!jail.can_rename());
            assert!(matches!(
                jail.run(attack(["read", "/workspace/file"]).mount(mount())),
                Err(JailError::Spec { .. })
            ));
        } else {
            assert_eq!(assert_worked(backend, &inside(&jail, spec)), "content");
        }
    }
}

#[test]
fn mounting_creates_nothing_in_a_host_folder() {
    let (_guard, folder) = folder();
    let (workspace, other) = (folder.join("workspace"), folder.join("other"));
    for path in [&workspace, &other] {
        fs_err::create_dir(path).expect("a folder");
    }
    for (_, jail) in namespaces() {
        let spec = || {
            attack(["list", "/workspace/skill"])
                .mount(Mount::new(&workspace, "/workspace", Access::ReadWrite))
                .mount(Mount::new(&other, "/workspace/skill", Access::ReadOnly))
        };
        assert!(matches!(jail.run(spec()), Err(JailError::Spec { .. })));
        assert!(!workspace.join("skill").exists());
        fs_err::create_dir(workspace.join("skill")).expect("a folder");
        fs_err::write(other.join("file"), "").expect("a file");
        assert_eq!(inside(&jail, spec()).stdout.text().trim(), "file");
        fs_err::remove_dir(workspace.join("skill")).expect("removal");
    }
}

#[test]
fn missing_mount_source_is_named_in_the_error() {
    for (_, jail) in jails() {
        let error =
            jail.run(attack(["exit"]).read_only("/nowhere/at/all")).expect_err("it does not exist");
        assert!(matches!(&error, JailError::MountSource { .. }), "{error}");
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}

#[test]
fn no_file_gets_the_set_user_id_bit() {
    let (_guard, folder) = folder();
    let file = folder.join("file").display().to_string();
    assert!(outside(&["set-uid", &file]).0);
    fs_err::remove_file(&file).expect("removal");
    for (backend, jail) in jails() {
        let finished = inside(&jail, attack(["set-uid", &file]).read_write(&folder));
        assert_refused(backend, &finished, &["Operation not permitted"]);
    }
}

#[test]
fn tmp_and_home_are_private_and_removed_afterwards() {
    for (backend, jail) in jails() {
        if backend == Backend::Landlock {
            let finished = inside(&jail, attack(["environment"]));
            let said = assert_worked(backend, &finished);
            let tmp = said.lines().find_map(|line| line.strip_prefix("TMPDIR=")).expect("a folder");
            assert!(!std::path::Path::new(tmp).exists(), "{tmp}");
            continue;
        }
        for path in ["/tmp/left-by-jail", "/home/jail/left-by-jail"] {
            assert_worked(backend, &inside(&jail, attack(["write", path])));
            assert!(!std::path::Path::new(path).exists());
            assert_refused(backend, &inside(&jail, attack(["read", path])), &["No such file"]);
        }
    }
}

#[test]
fn devices_of_the_host_keep_their_owner() {
    let owner = || {
        let meta = fs_err::metadata("/dev/null").expect("the device");
        (meta.uid(), meta.mode())
    };
    let before = owner();
    for (backend, jail) in jails() {
        assert_worked(backend, &inside(&jail, attack(["write", "/dev/null"])));
        assert_eq!(owner(), before, "{}", backend.name());
    }
}

#[test]
fn python_in_a_private_home_can_be_mounted() {
    // Only root can name what other users cannot reach; a link leads there, as in a virtual environment.
    if !is_root() {
        missing(Need::Root);
        return;
    }
    let (_guard, folder) = folder();
    let (base, venv) = (folder.join("home/base"), folder.join("venv"));
    for path in [base.join("bin"), venv.join("bin")] {
        fs_err::create_dir_all(path).expect("folders");
    }
    fs_err::copy("/bin/bash", base.join("bin/python3.11")).expect("an interpreter of sorts");
    std::os::unix::fs::symlink(base.join("bin/python3.11"), venv.join("bin/python3"))
        .expect("a link");
    fs_err::set_permissions(folder.join("home"), std::fs::Permissions::from_mode(0o700))
        .expect("a mode");
    let places = namespaces();
    let jail = &places.iter().find(|(_, place)| place.server.is_none()).expect("the helper").1;
    let spec = warpwright_jail::Spec::new(venv.join("bin/python3"))
        .args(["-c", "echo started"])
        .with_system();
    let error = jail
        .run(warpwright_jail::Spec::new(venv.join("bin/python3")).with_system().read_only(&venv));
    assert!(
        matches!(error, Err(JailError::Setup { .. })),
        "the control: without its base it cannot start"
    );
    assert_eq!(
        assert_worked(Backend::Namespaces, &inside(jail, spec.with_python(&venv))),
        "started"
    );
}
