//! Interrupted saves of a stage's folder, and runs started with other inputs.

use warpwright_record::blob::BlobHash;

use warpwright_rollout::error::ErrorKind;

use super::*;

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Far(u32);

fn checkpoint(folder: &Path, name: &str, far: u32) {
    let path = folder.join(name);
    fs::create_dir_all(&path).unwrap();
    write_json(&path.join(STATE), &Far(far)).unwrap();
}

#[test]
fn interrupted_save_leaves_a_usable_checkpoint() {
    // The folders that an interrupted save leaves, in order, and the checkpoint to resume from.
    let moments: [(&[(&str, u32)], u32); 6] = [
        (&[], 0),
        (&[("checkpoint", 1)], 1),
        (&[("checkpoint", 1), ("checkpoint.new", 2)], 1),
        (&[("checkpoint.old", 1), ("checkpoint.new", 2)], 1),
        (&[("checkpoint", 2), ("checkpoint.old", 1)], 2),
        (&[("checkpoint", 2)], 2),
    ];
    for (there, far) in moments {
        let stage = tempfile::tempdir().unwrap();
        for (name, far) in there {
            checkpoint(stage.path(), name, *far);
        }
        let folder = StageFolder::open(stage.path().to_owned()).unwrap();
        assert_eq!(folder.state::<Far>().unwrap(), Far(far), "{there:?}");
        assert!(!folder.is_done());
    }
}

#[test]
fn kept_checkpoint_is_unchanged_and_restored_by_rollback() {
    let stage = tempfile::tempdir().unwrap();
    let folder = StageFolder::open(stage.path().to_owned()).unwrap();
    let at = |far: u32| {
        checkpoint(stage.path(), "checkpoint", far);
        fs::create_dir_all(stage.path().join("checkpoint/critic")).unwrap();
        fs::write(stage.path().join("checkpoint/critic/weights"), [far as u8]).unwrap();
    };
    let weights = || fs::read(stage.path().join("checkpoint/critic/weights")).unwrap();
    at(5);
    folder.keep_for_rollback(5, &[5]).unwrap();
    // Remains of an interrupted save do not interfere.
    checkpoint(stage.path(), "checkpoint.half", 9);
    fs::remove_dir_all(stage.path().join("checkpoint")).unwrap();
    at(10);
    folder.keep_for_rollback(10, &[5, 10]).unwrap();
    // As written beside weights that stay.
    folder.keep_state(&Far(11)).unwrap();
    folder.keep_for_rollback(11, &[5, 10]).unwrap();
    assert!(folder.keeps(5) && folder.keeps(10) && !folder.keeps(11));

    folder.go_back(5, &Far(55)).unwrap();
    assert_eq!((folder.state::<Far>().unwrap(), weights()), (Far(55), vec![5]));
    // Once more, and to another checkpoint.
    folder.go_back(5, &Far(56)).unwrap();
    folder.go_back(10, &Far(57)).unwrap();
    assert_eq!((folder.state::<Far>().unwrap(), weights()), (Far(57), vec![10]));
    let kept: Far = read_json(&stage.path().join("checkpoint.5").join(STATE)).unwrap();
    assert_eq!(kept, Far(5));

    folder.keep_for_rollback(6, &[5]).unwrap();
    assert!(folder.keeps(5) && !folder.keeps(10));
    folder.go_back(0, &Far(58)).unwrap();
    assert_eq!(folder.state::<Far>().unwrap(), Far(0));
}

#[test]
fn copied_run_rolls_back_to_copied_checkpoints() {
    let stage = tempfile::tempdir().unwrap();
    let folder = StageFolder::open(stage.path().to_owned()).unwrap();
    checkpoint(stage.path(), "checkpoint", 12);
    // It had none, so it rolls back to the stage's beginning.
    let mut kept_steps = vec![];
    folder.settle(12, &mut kept_steps).unwrap();
    assert!(kept_steps.is_empty() && !folder.keeps(12));
    let mut kept_steps = vec![5, 10];
    folder.settle(12, &mut kept_steps).unwrap();
    assert_eq!(kept_steps, [12]);
    assert!(folder.keeps(12));
    // One of two remains.
    let mut kept_steps = vec![10, 12];
    folder.settle(14, &mut kept_steps).unwrap();
    assert_eq!(kept_steps, [12]);
    assert!(!folder.keeps(14));
}

#[test]
fn run_with_other_inputs_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let begun = |config: &str, seed, device: &str| Begun {
        version: Begun::VERSION,
        config: config.to_owned(),
        folder: PathBuf::from("."),
        tasks: [vec!["1".to_owned()], vec![]],
        seed,
        devices: vec![device.to_owned()],
        contents: Contents::default(),
    };
    let config = "max_turns = 8\n[ppo]\nlr = 1e-3\n";
    begun(config, 1, "cpu").enter(out.path()).unwrap();
    begun(config, 1, "cpu").enter(out.path()).unwrap();
    // A comment changes no value.
    begun(&format!("# A comment.\n{config}"), 1, "cpu").enter(out.path()).unwrap();
    let changed = "max_turns = 9\n[ppo]\ngamma = 0.9\n";
    let others = [
        (
            begun(changed, 1, "cpu"),
            "the configuration differs: `max_turns` 8 -> 9, `ppo.gamma` not set -> 0.9, `ppo.lr` 0.001 -> not set",
        ),
        (begun("max_turns = ", 1, "cpu"), "the configuration differs"),
        (begun(config, 2, "cpu"), "--seed differs: 1 -> 2"),
        (begun(config, 1, "cuda:0"), "--device differs: cpu -> cuda:0"),
        (
            Begun { tasks: [vec!["2".to_owned()], vec![]], ..begun(config, 1, "cpu") },
            "its tasks differ",
        ),
    ];
    for (other, what) in others {
        let failure = other.enter(out.path()).unwrap_err();
        assert!(failure.to_string().ends_with(what), "{failure}");
    }
}

fn begun_with(config: &str, contents: Contents) -> Begun {
    let (version, folder, tasks) = (Begun::VERSION, PathBuf::from("."), [vec![], vec![]]);
    Begun { version, config: config.to_owned(), folder, tasks, seed: 1, devices: vec![], contents }
}

#[test]
fn run_with_replaced_files_is_refused() {
    let config = "pretrained.path = \"chat\"\npretrain.sources = [\"code\"]\n";
    let contents = |weights: &[u8], sources: &[u8]| Contents {
        pretrained: Some([("model.safetensors".to_owned(), BlobHash::of(weights))].into()),
        sources: Some(BlobHash::of(sources)),
    };
    let out = tempfile::tempdir().unwrap();
    let enter = |contents| begun_with(config, contents).enter(out.path());
    enter(contents(b"1", b"2")).unwrap();
    enter(contents(b"1", b"2")).unwrap();
    for (replaced, told) in [
        (
            contents(b"0", b"2"),
            "the content of `pretrained.path` \"chat\" differs: model.safetensors",
        ),
        (contents(b"1", b"0"), "the content of `pretrain.sources` [\"code\"] differs"),
    ] {
        let failure = enter(replaced).unwrap_err();
        assert_eq!(failure.kind(), ErrorKind::Usage);
        assert!(failure.to_string().ends_with(told), "{failure}");
        assert!(failure.hint().unwrap().contains("restore what differs"));
    }
    // The run no longer reads the files.
    enter(Contents::default()).unwrap();
    // Another configuration names other files, so the message names only the changed key.
    let failure = begun_with("a = 1", contents(b"0", b"0")).enter(out.path()).unwrap_err();
    assert!(!failure.to_string().contains("content"), "{failure}");
}

#[test]
fn only_format_version_3_may_lack_contents() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("train.json");
    let sources = Some(BlobHash::of(b"1"));
    let begun = begun_with("", Contents { sources, ..Contents::default() });
    let mut json = serde_json::to_value(&begun).unwrap();
    json.as_object_mut().unwrap().remove("contents");
    write_json(&path, &json).unwrap();
    let failure = Begun::read(out.path()).unwrap_err();
    assert!(failure.to_string().contains("missing field `contents`"), "{failure}");
    json["version"] = 3.into();
    write_json(&path, &json).unwrap();
    assert_eq!(Begun::read(out.path()).unwrap().contents, Contents::default());
    begun.enter(out.path()).unwrap();
}

#[test]
fn long_list_of_changed_keys_is_cut() {
    let text = |value: usize| {
        (0..13).map(|n| format!("key{n:02} = {value}\n")).collect::<Vec<_>>().concat()
    };
    let told = changes(&text(1), &text(2)).unwrap();
    assert!(told.starts_with(": `key00` 1 -> 2, `key01`"), "{told}");
    assert!(told.ends_with("`key09` 1 -> 2, and 3 more keys"), "{told}");
    assert_eq!(changes(&text(1), &text(1)), None);
    let long = format!("a = \"{}\"", "x".repeat(200));
    assert!(changes("a = 1", &long).unwrap().len() < 100);
}

#[test]
fn run_of_another_format_version_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let (own, old) = (Begun::VERSION, Begun::OLDEST - 1);
    for (version, cure) in [(old, "the program that wrote it"), (own + 1, "a newer warpwright")] {
        let text = format!("{{\"version\": {version}, \"speech\": {{}}}}");
        fs::write(out.path().join("train.json"), text).unwrap();
        let failure = Begun::read(out.path()).unwrap_err();
        assert_eq!(failure.kind(), ErrorKind::RecordVersion);
        assert!(failure.to_string().contains(&format!("version {version}")), "{failure}");
        assert!(failure.hint().unwrap().contains(cure));
    }
}

#[test]
fn corrupt_file_is_named_in_the_error() {
    let stage = tempfile::tempdir().unwrap();
    checkpoint(stage.path(), "checkpoint", 1);
    fs::write(stage.path().join("checkpoint").join(STATE), "[1").unwrap();
    let folder = StageFolder::open(stage.path().to_owned()).unwrap();
    let failure = folder.state::<Far>().unwrap_err();
    assert!(failure.to_string().contains("checkpoint/state.json"), "{failure}");
}

#[test]
fn finished_stage_clears_its_failure() {
    let stage = tempfile::tempdir().unwrap();
    let folder = StageFolder::open(stage.path().to_owned()).unwrap();
    assert!(!folder.has_failed());
    let failure = TrainError::infrastructure("failed to learn: there is nothing", None);
    assert_eq!(folder.fail(failure).to_string(), "failed to learn: there is nothing");
    let told: serde_json::Value = read_json(&stage.path().join("failed.json")).unwrap();
    let message = "failed to learn: there is nothing";
    let expected =
        serde_json::json!({ "kind": "infrastructure", "message": message, "hint": null });
    assert_eq!(told, expected);
    assert!(folder.has_failed() && !folder.is_done());
    folder.finish(&Far(3)).unwrap();
    assert!(!folder.has_failed() && folder.is_done());
}
