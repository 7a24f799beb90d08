//! What interruptions leave of a stage's folder, and a run that was begun with something else.

use super::*;

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Far(u32);

fn checkpoint(folder: &Path, name: &str, far: u32) {
    let path = folder.join(name);
    fs::create_dir_all(&path).unwrap();
    write_json(&path.join(STATE), &Far(far)).unwrap();
}

#[test]
fn at_every_moment_of_a_save_there_is_a_checkpoint_to_go_on_from() {
    // The folders that a save leaves where it is stopped, in order; what is gone on from.
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
fn a_checkpoint_that_is_kept_stays_what_it_was_and_is_gone_back_to() {
    let stage = tempfile::tempdir().unwrap();
    let folder = StageFolder::open(stage.path().to_owned()).unwrap();
    let at = |far: u32| {
        checkpoint(stage.path(), "checkpoint", far);
        fs::create_dir_all(stage.path().join("checkpoint/critic")).unwrap();
        fs::write(stage.path().join("checkpoint/critic/weights"), [far as u8]).unwrap();
    };
    let weights = || fs::read(stage.path().join("checkpoint/critic/weights")).unwrap();
    at(5);
    folder.shelve(5, &[5]).unwrap();
    // What is left where it was stopped is in nobody's way.
    checkpoint(stage.path(), "checkpoint.half", 9);
    fs::remove_dir_all(stage.path().join("checkpoint")).unwrap();
    at(10);
    folder.shelve(10, &[5, 10]).unwrap();
    // As it is written beside weights that stay.
    folder.keep_state(&Far(11)).unwrap();
    folder.shelve(11, &[5, 10]).unwrap();
    assert!(folder.keeps(5) && folder.keeps(10) && !folder.keeps(11));

    folder.go_back(5, &Far(55)).unwrap();
    assert_eq!((folder.state::<Far>().unwrap(), weights()), (Far(55), vec![5]));
    // Once more, and to another.
    folder.go_back(5, &Far(56)).unwrap();
    folder.go_back(10, &Far(57)).unwrap();
    assert_eq!((folder.state::<Far>().unwrap(), weights()), (Far(57), vec![10]));
    let kept: Far = read_json(&stage.path().join("checkpoint.5").join(STATE)).unwrap();
    assert_eq!(kept, Far(5));

    folder.shelve(6, &[5]).unwrap();
    assert!(folder.keeps(5) && !folder.keeps(10));
    folder.go_back(0, &Far(58)).unwrap();
    assert_eq!(folder.state::<Far>().unwrap(), Far(0));
}

#[test]
fn a_run_that_was_taken_elsewhere_goes_back_to_what_came_with_it() {
    let stage = tempfile::tempdir().unwrap();
    let folder = StageFolder::open(stage.path().to_owned()).unwrap();
    checkpoint(stage.path(), "checkpoint", 12);
    // It had none, so it is to go back to its beginning, as it would have.
    let mut shelf = vec![];
    folder.settle(12, &mut shelf).unwrap();
    assert!(shelf.is_empty() && !folder.keeps(12));
    let mut shelf = vec![5, 10];
    folder.settle(12, &mut shelf).unwrap();
    assert_eq!(shelf, [12]);
    assert!(folder.keeps(12));
    // One of two is left.
    let mut shelf = vec![10, 12];
    folder.settle(14, &mut shelf).unwrap();
    assert_eq!(shelf, [12]);
    assert!(!folder.keeps(14));
}

#[test]
fn a_run_that_was_begun_with_something_else_is_left_alone() {
    let out = tempfile::tempdir().unwrap();
    let begun = |config: &str, seed, device: &str| Begun {
        version: Begun::VERSION,
        config: config.to_owned(),
        folder: PathBuf::from("."),
        tasks: [vec!["1".to_owned()], vec![]],
        seed,
        devices: vec![device.to_owned()],
    };
    begun("a", 1, "cpu").enter(out.path()).unwrap();
    begun("a", 1, "cpu").enter(out.path()).unwrap();
    let others = [
        (begun("b", 1, "cpu"), "the configuration"),
        (begun("a", 2, "cpu"), "--seed"),
        (begun("a", 1, "cuda:0"), "--device"),
        (Begun { tasks: [vec!["2".to_owned()], vec![]], ..begun("a", 1, "cpu") }, "tasks"),
    ];
    for (other, what) in others {
        let failure = other.enter(out.path()).unwrap_err();
        assert!(failure.message.contains(what), "{}", failure.message);
    }
}

#[test]
fn a_file_that_is_no_longer_whole_is_named() {
    let stage = tempfile::tempdir().unwrap();
    checkpoint(stage.path(), "checkpoint", 1);
    fs::write(stage.path().join("checkpoint").join(STATE), "[1").unwrap();
    let folder = StageFolder::open(stage.path().to_owned()).unwrap();
    let failure = folder.state::<Far>().unwrap_err();
    assert!(failure.message.contains("checkpoint/state.json"), "{}", failure.message);
}

#[test]
fn a_stage_that_failed_and_is_done_after_all_has_not_failed() {
    let stage = tempfile::tempdir().unwrap();
    let folder = StageFolder::open(stage.path().to_owned()).unwrap();
    assert!(!folder.has_failed());
    let failure = Failure::infrastructure("failed to learn: there is nothing", None);
    assert_eq!(folder.fail(failure.clone()), failure);
    assert!(folder.has_failed() && !folder.is_done());
    folder.finish(&Far(3)).unwrap();
    assert!(!folder.has_failed() && folder.is_done());
}
