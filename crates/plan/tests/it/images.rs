//! Images that nvcc made.

use proptest::prelude::*;
use warpwright_plan::image::{Image, ImageError, KernelInfo, fatbin_at, fatbins as listed};

use crate::fixture::{COMPRESSED, KERNELS, LAUNCHES, LIBRARY, PTX, SHIFT, SYMBOLS, fatbins};

fn kernels() -> Image {
    Image::read(&LIBRARY[fatbins()[0].clone()]).unwrap()
}

fn kernel(name: &str) -> KernelInfo {
    kernels().kernels.remove(name).unwrap()
}

#[test]
fn fat_binaries_are_found_by_address() {
    for range in fatbins() {
        assert_eq!(fatbin_at(LIBRARY, range.start as u64 + SHIFT), Ok(range));
    }
}

#[test]
fn fat_binaries_of_a_library_are_listed() {
    let expected = fatbins().map(|range| (range.start as u64 + SHIFT, range));
    assert_eq!(listed(LIBRARY), Ok(expected.to_vec()));
    let [range, _] = fatbins();
    assert_eq!(listed(&LIBRARY[range.start + 80..range.end]), Ok(Vec::new()));
}

#[test]
fn addresses_beside_fat_binaries_are_refused() {
    let [first, second] = fatbins();
    for address in [0, first.start - 8, first.start + 8, first.start + 80, second.end, usize::MAX] {
        let address = address as u64;
        assert_eq!(fatbin_at(LIBRARY, address), Err(ImageError::NoFatbin { address }));
    }
    // A place within an image that looks like a fat binary is none.
    let mut forged = LIBRARY.to_vec();
    let (inside, header) = (first.start + 16 + 64 + 64, first.start..first.start + 16);
    forged.copy_within(header, inside);
    forged[inside + 8..inside + 16].copy_from_slice(&64u64.to_le_bytes());
    assert!(matches!(fatbin_at(&forged, inside as u64), Err(ImageError::NoFatbin { .. })));
    assert_eq!(fatbin_at(&forged, first.start as u64), Ok(first));
}

#[test]
fn kernels_have_their_parameter_sizes() {
    for (name, params) in KERNELS {
        assert_eq!(kernel(name).param_bytes(), params, "{name}");
    }
    assert_eq!(kernel("packed").param_bytes(), [9, 1]);
    assert_eq!(kernels().kernels.len(), 9);
    // Relative to the first byte, which lies at 0x210: this map is aligned to 128 bytes.
    assert_eq!(kernel("mapped").params[0].offset, 0x70);
}

#[test]
fn kernels_have_their_resources() {
    let large = kernel("large");
    assert_eq!((large.static_shared, large.max_threads), (400, Some(128)));
    assert_eq!(kernel("scale").static_shared, 0);
    assert!((4..=64).contains(&kernel("scale").registers));
    assert_eq!(kernel("scale").max_threads, None);
    assert_eq!((kernel("spilled").local, kernel("scale").local), (160, 0));
    assert_eq!(kernel("clustered").cluster, Some([2, 1, 1]));
    assert_eq!(kernel("sized").required_block, Some([64, 2, 1]));
    assert_eq!(kernels().compute_capability, 90);
}

#[test]
fn variables_have_their_sizes() {
    let expected = SYMBOLS.map(|(name, bytes)| (name.to_owned(), bytes));
    assert_eq!(kernels().symbols.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn functions_of_the_device_runtime_are_named() {
    assert!(kernels().needs.is_empty());
    let runtime = Image::read(&LIBRARY[fatbins()[1].clone()]).unwrap();
    let needs: Vec<&str> = runtime.needs.iter().map(String::as_str).collect();
    assert_eq!(needs, ["__assertfail", "free", "malloc", "vprintf"]);
    let launches = Image::read(LAUNCHES).unwrap();
    assert!(launches.needs.contains("__cudaCDP2LaunchDeviceV2"), "{:?}", launches.needs);
}

#[test]
fn bare_images_read_like_fat_binaries() {
    let [range, _] = fatbins();
    let bare = &LIBRARY[range.start + 16 + 64..range.end];
    assert_eq!(Image::read(bare), Ok(kernels()));
}

#[test]
fn compressed_images_and_ptx_are_refused() {
    assert_eq!(Image::read(COMPRESSED), Err(ImageError::Compressed));
    assert_eq!(Image::read(PTX), Err(ImageError::Ptx));
    let [range, _] = fatbins();
    let mut two = LIBRARY[range.clone()].to_vec();
    two.extend_from_slice(&LIBRARY[range.start + 16..range.end]);
    let bytes = (two.len() - 16) as u64;
    two[8..16].copy_from_slice(&bytes.to_le_bytes());
    assert_eq!(Image::read(&two), Err(ImageError::Several));
    assert!(matches!(Image::read(LIBRARY), Err(ImageError::Malformed { .. })));
    assert!(matches!(Image::read(b""), Err(ImageError::Malformed { .. })));
}

#[test]
fn truncated_images_are_refused() {
    let [range, _] = fatbins();
    let whole = &LIBRARY[range];
    for end in (0..whole.len()).step_by(97) {
        assert!(Image::read(&whole[..end]).is_err(), "{end} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn changed_images_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        headers in any::<bool>(),
    ) {
        let [range, _] = fatbins();
        for whole in [LIBRARY, &LIBRARY[range.clone()], LAUNCHES] {
            let mut bytes = whole.to_vec();
            // Changes of headers matter more than changes of code.
            let (start, count) = if headers { (bytes.len() * 3 / 4, bytes.len() / 4) } else { (0, bytes.len()) };
            for (at, value) in &changes {
                bytes[start + at.index(count)] = *value;
            }
            let _ = Image::read(&bytes);
            let _ = fatbin_at(&bytes, range.start as u64);
        }
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 64..512), fat in any::<bool>()) {
        let magic: &[u8] = if fat { &[0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0] } else { b"\x7fELF\x02\x01" };
        bytes[..magic.len()].copy_from_slice(magic);
        let _ = Image::read(&bytes);
        let _ = fatbin_at(&bytes, 0);
    }
}
