//! Files from untrusted clients.

use std::collections::BTreeMap;

use proptest::prelude::*;
use warpwright_record::candidate::{Candidate, MAX_FILE_BYTES, MAX_FILES};

fn files(names: &[&str]) -> BTreeMap<String, Vec<u8>> {
    names.iter().map(|name| ((*name).to_owned(), b"x".to_vec())).collect()
}

#[test]
fn only_plain_file_names_are_accepted() {
    let good =
        files(&["model_new.py", "kernels/a.cu", "kernels/deep/er/b-1_2.cuh", "kernels/c.d.cpp"]);
    let taken = Candidate::from_stranger(good.clone()).unwrap();
    assert_eq!(taken, Candidate::from_files(good));
    let long = format!("kernels/{}", "x".repeat(121));
    let bad = [
        "../model_new.py",
        "/etc/passwd",
        "kernels",
        "kernels/",
        "kernels/..",
        "kernels/../x",
        "kernels/.x",
        "kernels//x",
        "kernels/a b",
        "kernels/ü.cu",
        "kernels/x\n",
        "kernels/x\0",
        "other.py",
        "",
        ".",
        "kernels/a/b/c/d/e/f",
        "Kernels/a.cu",
        "model_new.py/x",
        "kernels\\x",
        &long,
    ];
    for name in bad {
        let error = Candidate::from_stranger(files(&["model_new.py", name])).unwrap_err();
        assert!(error.to_string().contains("plain name"), "{name:?}: {error}");
        assert!(error.to_string().len() < 300);
    }
}

#[test]
fn missing_model_and_oversized_candidates_are_refused() {
    assert!(Candidate::from_stranger(files(&["kernels/a.cu"])).is_err());
    let clash = files(&["model_new.py", "kernels/a", "kernels/a/b.cu"]);
    assert!(
        Candidate::from_stranger(clash).unwrap_err().to_string().contains("kernels/a is a file")
    );
    let mut large = files(&["model_new.py"]);
    large.insert("kernels/a.cu".to_owned(), vec![b'x'; MAX_FILE_BYTES as usize + 1]);
    assert!(Candidate::from_stranger(large).unwrap_err().to_string().contains("larger than 4 MiB"));
    let mut many = files(&["model_new.py"]);
    many.extend((0..MAX_FILES).map(|n| (format!("kernels/{n}.cu"), Vec::new())));
    assert!(Candidate::from_stranger(many).unwrap_err().to_string().contains("more than 1024"));
}

proptest! {
    /// An accepted name, joined to a folder, stays below that folder's `kernels`.
    #[test]
    fn no_accepted_name_escapes_the_folder(name in "[a-z./\\\\~ -]{0,24}|kernels/[a-zA-Z0-9._/-]{0,24}") {
        let taken = Candidate::from_stranger(files(&["model_new.py", &name]));
        if taken.is_ok() && name != "model_new.py" {
            let path = std::path::Path::new("/base").join(&name);
            let plain = |part| matches!(part, std::path::Component::Normal(_));
            prop_assert!(path.starts_with("/base/kernels"));
            prop_assert!(path.components().skip(1).all(plain));
            prop_assert_eq!(path.to_str().unwrap(), format!("/base/{name}"));
        }
    }
}
