use proptest::prelude::*;
use serde_json::json;
use warpwright_plan::{Block, Module, Outputs, PLAN_VERSION, Producer, Role};

use super::*;

/// A plan of the host's kernels, whose images nothing reads here, with a table for each set of weights.
fn stored() -> StoredPlan {
    let constant = |bytes: &[u8]| Constant {
        hash: blake3::hash(bytes).to_hex().to_string(),
        bytes: bytes.len() as u64,
    };
    let image = b"an image".to_vec();
    let hash = blake3::hash(&image).to_hex().to_string();
    let tables = [vec![1; 8], vec![2; 8]];
    let plan = LaunchPlan {
        version: PLAN_VERSION,
        producer: Producer { kind: "cuda-runtime".to_owned(), compiler: "nvcc".to_owned() },
        modules: vec![Module { file: hash.clone(), hash, offset: 0, bytes: image.len() as u64 }],
        kernels: Vec::new(),
        tensor_maps: Vec::new(),
        constants: vec![constant(&tables[0])],
        blocks: vec![Block { bytes: 8, role: Role::Constant(0) }],
        prepare: Vec::new(),
        forward: Vec::new(),
        outputs: Outputs { tree: json!([]), tensors: Vec::new() },
    };
    let weights = ["other", "init"].iter().zip(&tables).map(|(name, table)| StoredWeights {
        name: (*name).to_owned(),
        hash: "00".repeat(32),
        constants: vec![constant(table)],
    });
    let head = Head {
        task: StoredTask {
            name: "task".to_owned(),
            source: "import torch\n".to_owned(),
            mode: Mode::Train,
        },
        candidate: "ab".repeat(32),
        profile: Profile::Strict,
        seed: 7,
        target: "cpu".to_owned(),
        plan,
        weights: weights.collect(),
        trees: [json!({"list": [{"tensor": 0}]}), json!({"list": [{"tensor": 0}]})],
        prepare_ms: 1.5,
        library_calls: vec!["cublasSgemm".to_owned()],
        libraries: Vec::new(),
        forms: None,
    };
    StoredPlan { head, images: vec![image], constants: tables.map(|table| vec![table]).into() }
}

/// Reads a file under its own name.
fn read(file: &[u8]) -> Result<StoredPlan, PlanFileError> {
    StoredPlan::read(file, BlobHash::of(file))
}

/// A way to damage a plan.
type Change = fn(&mut StoredPlan);

/// What reading the file of a plan says that `change` has changed.
fn refused(change: impl FnOnce(&mut StoredPlan)) -> String {
    let mut changed = stored();
    change(&mut changed);
    match read(&changed.write().unwrap()) {
        Err(error) => {
            assert!(!error.hint().is_empty());
            error.to_string()
        }
        Ok(_) => "nothing".to_owned(),
    }
}

#[test]
fn stored_plan_survives_its_file() {
    let file = stored().write().unwrap();
    assert_eq!(file, stored().write().unwrap(), "the same plan has the same hash");
    let back = read(&file).unwrap();
    assert_eq!(back, stored());
    let task = back.task();
    assert_eq!((task.name.as_str(), task.mode), ("task", Mode::Train));
    let plans = back.plans().unwrap();
    let [(other, first), (init, second)] = &plans[..] else { panic!("{}", plans.len()) };
    assert_eq!((*other, *init), ("other", "init"));
    assert!(first.plan.same_but_constants(&second.plan));
    assert_eq!((&first.constants[0], &second.constants[0]), (&vec![1; 8], &vec![2; 8]));
    let folder = tempfile::tempdir().unwrap();
    back.unpack(folder.path()).unwrap();
    let unpacked = fs::read(folder.path().join(&first.plan.modules[0].file)).unwrap();
    assert_eq!(unpacked, b"an image");
}

#[test]
fn plan_of_another_version_is_refused() {
    let mut file = stored().write().unwrap();
    file[8] = 9;
    let error = read(&file).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the launch plan file has version 9, and this program reads version 1"
    );
    assert!(error.hint().contains("judge the candidate again"), "{}", error.hint());
    // The plan within has a version of its own, which the check of a GPU's plan compares.
    let told = refused(|plan| {
        plan.head.target = "cuda-sm_90a".to_owned();
        plan.head.plan.version = 99;
        plan.images.clear();
        plan.head.plan.modules.clear();
    });
    assert_eq!(told, "the launch plan has version 99; this program reads version 1");
}

#[test]
fn changed_plan_files_are_refused_by_name() {
    assert_eq!(refused(|_| {}), "nothing", "the control");
    let file = stored().write().unwrap();
    let other = BlobHash::of(b"other");
    let error = StoredPlan::read(&file, other).unwrap_err();
    assert!(matches!(error, PlanFileError::Hash { .. }), "{error}");
    assert!(matches!(read(b""), Err(PlanFileError::Magic)));
    assert!(matches!(read(b"{\"version\": 1}"), Err(PlanFileError::Magic)));
    assert!(matches!(read(&file[..file.len() - 1]), Err(PlanFileError::Damaged(_))));
    let hash = "an image or a constant has another hash than its head says";
    let name = "a module is not named by its hash";
    let sets = "its sets of weights have other constants than each other";
    let cases: [(&str, Change); 10] = [
        (hash, |plan| plan.images[0][0] ^= 1),
        (hash, |plan| plan.constants[1][0][0] ^= 1),
        ("it is too short", |plan| plan.constants[1].clear()),
        ("there is more than its head says", |plan| plan.constants[1].push(vec![0])),
        (name, |plan| plan.head.plan.modules[0].file = "../secret".to_owned()),
        (name, |plan| plan.head.plan.modules[0].offset = 1),
        (sets, |plan| plan.head.weights[1].constants.clear()),
        (sets, |plan| plan.head.weights.clear()),
        ("its modules", |plan| plan.head.plan.modules[0].bytes = u64::MAX),
        ("its constants", |plan| {
            plan.head.weights.iter_mut().for_each(|set| set.constants[0].bytes = u64::MAX);
        }),
    ];
    for (expected, change) in cases {
        let told = refused(change);
        assert!(told.contains(expected), "{told}: {expected}");
    }
}

#[test]
fn compressed_bombs_take_no_memory() {
    // A head of a gigabyte, and images that are promised and not there.
    let mut content = u32::MAX.to_le_bytes().to_vec();
    content.extend(vec![b' '; 1 << 20]);
    let mut file = MAGIC.to_vec();
    file.extend(VERSION.to_le_bytes());
    file.extend(zstd::bulk::compress(&content, LEVEL).unwrap());
    assert!(matches!(read(&file), Err(PlanFileError::TooLarge("its head"))));
    let told = refused(|plan| plan.head.plan.modules[0].bytes = MAX_MODULE_BYTES);
    assert!(told.contains("it is too short"), "{told}");
}

proptest! {
    #[test]
    fn mutated_plan_files_never_panic(at in 12usize..4000, byte: u8, cut in 0usize..4000) {
        let mut file = stored().write().unwrap();
        let at = at % file.len();
        file[at] = byte;
        let _ = read(&file);
        file.truncate(cut % file.len());
        let _ = read(&file);
    }

    #[test]
    fn mutated_heads_never_panic(at in 0usize..8000, byte in 32u8..127) {
        let stored = stored();
        let mut head = serde_json::to_vec(&stored.head).unwrap();
        let at = at % head.len();
        head[at] = byte;
        let mut content = (head.len() as u32).to_le_bytes().to_vec();
        content.extend(head);
        stored.images.iter().chain(stored.constants.iter().flatten()).for_each(|b| content.extend(b));
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        file.extend(zstd::bulk::compress(&content, LEVEL).unwrap());
        let _ = read(&file);
    }
}
