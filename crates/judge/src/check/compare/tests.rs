use super::*;
use crate::check::dtype::Dtype;
use crate::check::tolerance::Steps;
use crate::device::arena::{HostArena, Zone};
use std::io::{Seek, SeekFrom, Write};

fn arena(bytes: &[u8]) -> Arena {
    let host = HostArena::create(bytes.len().max(4096) as u64).unwrap();
    let mut file = std::fs::File::from(host.fd().try_clone_to_owned().unwrap());
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(bytes).unwrap();
    Arena::Host(host)
}

fn f32s(values: &[f32]) -> Arena {
    arena(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
}

fn f64s(values: &[f64]) -> Arena {
    arena(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
}

fn at(shape: &[u64], strides: &[u64], dtype: Dtype) -> Located {
    Located { offset: 0, shape: shape.to_vec(), strides: strides.to_vec(), dtype }
}

const TIGHT: Tolerance = Tolerance { atol: 1e-6, rtol: 1e-6 };

fn terms(dtype: Dtype) -> Terms {
    Terms { tolerance: TIGHT, steps: Steps::default(), dtype, poison: None }
}

/// The pattern that memory is filled with, from the start of the arena.
const POISON: Poison = Poison { start: 0, word: 0x7fff_7fff_7fff_7fff };

#[test]
fn transposed_memory_is_compared_by_index() {
    let got = f32s(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let want = f64s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (g, w) = (at(&[2, 3], &[1, 2], Dtype::F32), at(&[2, 3], &[3, 1], Dtype::F64));
    assert_eq!(compare(&got, &g, &want, &w, None, terms(Dtype::F32)).unwrap().wrong, 0);
    let wrong = at(&[2, 3], &[3, 1], Dtype::F32);
    let told = compare(&got, &wrong, &want, &w, None, terms(Dtype::F32)).unwrap();
    assert_eq!((told.wrong, told.examples[0].index.clone()), (4, vec![0, 1]));
}

#[test]
fn small_elements_have_their_own_tolerance_beside_large_ones() {
    let want: Vec<f64> =
        (0..100_000).map(|i| if i % 10 == 0 { -1e9 } else { f64::from(i % 7) }).collect();
    let near: Vec<f32> =
        want.iter().map(|&w| if w < 0.0 { w as f32 - 128.0 } else { w as f32 + 1e-6 }).collect();
    let (count, whole) = (want.len() as u64, Tolerance { atol: 500.0, rtol: 0.0 });
    let steps = Steps::one(128.0, 1e-5);
    let terms = Terms { tolerance: whole, steps, dtype: Dtype::F32, poison: None };
    let (g, w) = (at(&[count], &[1], Dtype::F32), at(&[count], &[1], Dtype::F64));
    let wanted = f64s(&want);
    let wrong = |got: &[f32], terms| compare(&f32s(got), &g, &wanted, &w, None, terms).unwrap();
    assert_eq!(wrong(&near, terms).wrong, 0, "large ones may be as far off as they are large");
    let mut off = near;
    off[77_777] += 1e-3;
    let told = wrong(&off, terms);
    assert_eq!((told.wrong, told.atol), (1, Some(1e-5)));
    assert_eq!(told.examples[0].index, [77_777]);
    let whole = Terms { steps: Steps::default(), ..terms };
    assert_eq!(wrong(&off, whole).wrong, 0, "positive control: one tolerance covers it");
}

#[test]
fn nan_is_correct_only_where_the_reference_is_nan() {
    let got = f32s(&[f32::NAN, f32::NAN, f32::INFINITY, f32::INFINITY]);
    let want = f64s(&[1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    let (g, w) = (at(&[4], &[1], Dtype::F32), at(&[4], &[1], Dtype::F64));
    let told = compare(&got, &g, &want, &w, None, terms(Dtype::F32)).unwrap();
    assert_eq!((told.wrong, told.non_finite), (2, 1));
    assert!(told.max_abs_error.is_infinite());
}

#[test]
fn one_wrong_element_among_millions_is_found() {
    let n = 3_000_000;
    let mut values = vec![0.5f32; n];
    values[2_999_999] = 0.6;
    let (got, want) = (f32s(&values), f64s(&vec![0.5; n]));
    let (g, w) = (at(&[n as u64], &[1], Dtype::F32), at(&[n as u64], &[1], Dtype::F64));
    let told = compare(&got, &g, &want, &w, None, terms(Dtype::F32)).unwrap();
    assert_eq!((told.wrong, told.count), (1, n as u64));
    assert_eq!(told.examples[0].index, [2_999_999]);
}

#[test]
fn parallel_chunks_cover_every_element_once_in_order() {
    for count in [0, 1, 999, 1000, 1001, 123_456] {
        let parts = in_parallel(count, 1000, |first, end| Ok((first, end))).unwrap();
        let mut next = 0;
        for (first, end) in parts {
            assert!(first == next && end > first, "{first} after {next}");
            next = end;
        }
        assert_eq!(next, count);
    }
    // The first offending elements stay the first, whichever core finds which.
    let n = 3_000_000;
    let (got, want) = (f32s(&vec![1.0; n]), f64s(&vec![0.5; n]));
    let (g, w) = (at(&[n as u64], &[1], Dtype::F32), at(&[n as u64], &[1], Dtype::F64));
    let told = compare(&got, &g, &want, &w, None, terms(Dtype::F32)).unwrap();
    assert_eq!(told.wrong, n as u64);
    let first: Vec<u64> = told.examples.iter().map(|e| e.index[0]).collect();
    assert_eq!(first, [0, 1, 2, 3, 4]);
}

/// On random bytes, which hold infinities, NaN and subnormal numbers, the GPU and this process
/// come to the same; and a tensor that its kernels must not touch is left to this process.
#[test]
fn gpu_and_host_comparisons_agree() {
    use crate::device::arena::{CudaArena, CudaDevice};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    let gpu = std::sync::Arc::new(CudaDevice::open(0).unwrap());
    let [mine, truths] = [(); 2].map(|()| {
        Arena::Cuda(CudaArena::create(&gpu, 4 << 20, Zone { offset: 4 << 20, bytes: 0 }).unwrap())
    });
    let write = |arena: &Arena, offset, bytes: &[u8]| match arena {
        Arena::Cuda(arena) => arena.write(offset, bytes).unwrap(),
        Arena::Host(_) => unreachable!(),
    };
    let mut random = StdRng::seed_from_u64(1);
    let dtypes = [
        Dtype::F64,
        Dtype::F32,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::I64,
        Dtype::I32,
        Dtype::I16,
        Dtype::I8,
        Dtype::U8,
        Dtype::Bool,
    ];
    let mut bytes = vec![0u8; 1 << 20];
    let mut seen = [0, 0];
    for (round, dtype) in dtypes.into_iter().cycle().take(60).enumerate() {
        random.fill(&mut bytes[..]);
        write(&mine, 4096, &bytes);
        // Two of three times the truth is what was got, and now and then something else.
        let truth = if dtype.is_real() { Dtype::F64 } else { dtype };
        let (wide, size) = (truth.size() as usize, dtype.size() as usize);
        let mut exact = vec![0u8; bytes.len() / size * wide];
        for (to, from) in exact.chunks_exact_mut(wide).zip(bytes.chunks_exact(size)) {
            if dtype.is_real() {
                to.copy_from_slice(&dtype.value(from).to_le_bytes());
            } else {
                to.copy_from_slice(from);
            }
        }
        if round % 3 == 2 {
            let at = random.random_range(0..1000 * wide);
            exact[at] ^= 0x55;
        }
        exact.truncate(3 << 20);
        write(&truths, 0, &exact);
        let shape = [8, 31, 4];
        let strides: &[u64] = if round % 2 == 0 { &[124, 4, 1] } else { &[1, 32, 1024] };
        let got = Located { offset: 4096, ..at(&shape, strides, dtype) };
        let want = at(&shape, strides, truth);
        let tolerance = Tolerance { atol: 0.0, rtol: 1e-12 };
        // As if what was got were what nobody wrote, now and then.
        let poison = (round % 4 == 3).then_some(Poison {
            start: 4096,
            word: u64::from_le_bytes(bytes[..8].try_into().unwrap()),
        });
        let rule = Terms { tolerance, steps: Steps::default(), dtype, poison };
        let (got, want) = ((&mine, &got), (&truths, &want));
        let there = compare_there(got, want, None, rule).unwrap().unwrap();
        let here = compare_here(got, want, None, rule).unwrap();
        assert_eq!((there.wrong, there.non_finite), (here.wrong, here.non_finite), "{dtype:?}");
        assert_eq!(there.max_abs_error.to_bits(), here.max_abs_error.to_bits(), "{dtype:?}");
        seen[usize::from(here.wrong > 0)] += 1;
    }
    assert!(seen[0] > 20 && seen[1] > 5, "{seen:?}");
    let odd = Located { offset: 4097, ..at(&[16], &[1], Dtype::F32) };
    let far = Located { offset: 4 << 20, ..at(&[16], &[1], Dtype::F32) };
    for refused in [odd, far] {
        let want = at(&[16], &[1], Dtype::F64);
        let rule = terms(Dtype::F32);
        let there = compare_there((&mine, &refused), (&truths, &want), None, rule).unwrap();
        assert_eq!(there, None);
    }
    // Ranges that differ in one byte, in whole words and behind them.
    for (bytes, at) in [(4096, 77), (4099, 4098)] {
        let mut copy = vec![7u8; bytes];
        write(&mine, 0, &copy);
        write(&truths, 512, &copy);
        assert!(equal_bytes(&mine, 0, &truths, 512, bytes as u64).unwrap());
        copy[at] = 8;
        write(&truths, 512, &copy);
        assert!(!equal_bytes(&mine, 0, &truths, 512, bytes as u64).unwrap());
        assert!(equal_bytes(&mine, 0, &truths, 512, at as u64).unwrap());
    }
}

#[test]
fn an_integer_may_match_either_precision() {
    let ints = |v: &[i64]| arena(&v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
    let got = ints(&[3, 5, 9]);
    let both = ints(&[3, 4, 8, 3, 5, 7]);
    let w = at(&[3], &[1], Dtype::I64);
    let own = Located { offset: 24, ..w.clone() };
    let told = compare(&got, &w, &both, &w, Some(&own), terms(Dtype::I64)).unwrap();
    assert_eq!((told.wrong, told.examples[0].index.clone()), (1, vec![2]));
}

/// What is right, said again from the rule's words: every kind of element against every other.
fn right_in_words(got: f64, want: f64, own: Option<f64>, allowed: f64, limit: f64) -> bool {
    let same = |a: f64, b: f64| {
        a.partial_cmp(&b).is_some_and(std::cmp::Ordering::is_eq) || (a.is_nan() && b.is_nan())
    };
    let near = |a: f64, b: f64| b.is_finite() && (a - b).abs() <= allowed;
    if near(got, want) || (!want.is_finite() && same(got, want)) {
        return true;
    }
    if want.is_finite()
        && got.is_infinite()
        && got.signum() == want.signum()
        && want.abs() + allowed >= limit
    {
        return true;
    }
    match own {
        Some(own) if !near(own, want) && !same(own, want) => near(got, own) || same(got, own),
        _ => false,
    }
}

fn numbers() -> impl proptest::strategy::Strategy<Value = f64> {
    use proptest::prelude::*;
    prop_oneof![
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(0.0),
        Just(65504.0),
        Just(65519.9),
        Just(-65530.0),
        (-4.0f64..4.0).prop_map(|v| (v * 2.0).round() / 2.0),
        -1e5f64..1e5,
    ]
}

proptest::proptest! {
    #[test]
    fn elements_are_judged_as_the_written_rule_says(
        got in numbers(), want in numbers(), own in proptest::option::of(numbers()),
        atol in 0.0f64..1.0,
    ) {
        let tolerance = Tolerance { atol, rtol: 0.0 };
        let terms = Terms { tolerance, steps: Steps::default(), dtype: Dtype::F16, poison: None };
        let both = |v: f64| (v.to_bits(), v);
        let triple = Triple { got: both(got), want: both(want), own: own.map(both) };
        let wanted = right_in_words(got, want, own, atol, Dtype::F16.limit());
        proptest::prop_assert_eq!(terms.right(&triple), wanted);
    }

    /// Against the bytes that filling writes.
    #[test]
    fn poison_bits_are_correct_at_every_address(
        word in proptest::prelude::any::<u64>(), start in 0u64..64, at in 0u64..64, power in 0u32..4,
    ) {
        let size = 1u64 << power;
        let filled: Vec<u8> = word.to_le_bytes().repeat(20);
        let from = at as usize;
        let mut wanted = [0; 8];
        wanted[..size as usize].copy_from_slice(&filled[from..from + size as usize]);
        let bits = Poison { start, word }.bits(start + at, size);
        proptest::prop_assert_eq!(bits, u64::from_le_bytes(wanted));
    }
}

/// Of what nobody wrote the poison's NaN would be right where the truth is NaN.
#[test]
fn an_unwritten_element_is_wrong_where_the_truth_is_nan() {
    let filled = arena(&0x7fff_u16.to_le_bytes().repeat(64));
    let (g, w) = (at(&[8], &[1], Dtype::F32), at(&[8], &[1], Dtype::F64));
    let poisoned = Terms { poison: Some(POISON), ..terms(Dtype::F32) };
    let undefined = f64s(&[f64::NAN; 8]);
    let told = compare(&filled, &g, &undefined, &w, None, poisoned).unwrap();
    assert_eq!((told.wrong, told.unwritten), (8, 8));
    let told = compare(&filled, &g, &undefined, &w, None, terms(Dtype::F32)).unwrap();
    assert_eq!(told.wrong, 0, "positive control");
    // What hardware and torch give for no number is no poison.
    for bits in [0x7fc0_0000, 0xffc0_0000, 0x7fff_ffff] {
        let honest = f32s(&[f32::from_bits(bits); 8]);
        assert_eq!(compare(&honest, &g, &undefined, &w, None, poisoned).unwrap().wrong, 0);
    }
    // Where the truth is another, it is wrong anyhow, and said to be unwritten.
    let ones = f64s(&[1.0; 8]);
    let told = compare(&filled, &g, &ones, &w, None, poisoned).unwrap();
    assert_eq!((told.wrong, told.non_finite, told.unwritten), (8, 8, 8));
}

/// Whole numbers of 32 bits are never the poison by chance; of 8 and 16 bits 127 and 32767 are.
#[test]
fn wide_integers_equal_to_the_poison_count_as_unwritten() {
    let filled = arena(&0x7fff_u16.to_le_bytes().repeat(64));
    for (dtype, wrong) in [(Dtype::I64, 4), (Dtype::I32, 4), (Dtype::I16, 0), (Dtype::U8, 0)] {
        let w = at(&[4], &[1], dtype);
        let poisoned = Terms { poison: Some(POISON), ..terms(dtype) };
        let told = compare(&filled, &w, &filled, &w, None, poisoned).unwrap();
        assert_eq!(told.wrong, wrong, "{dtype:?}");
        // In a window with the other pattern what was not written is not the truth.
        let other = arena(&0x1234_5678_9abc_def1_u64.to_le_bytes().repeat(16));
        let told = compare(&other, &w, &filled, &w, None, poisoned).unwrap();
        assert_eq!(told.wrong, 4, "{dtype:?}");
    }
}

#[test]
fn integers_beyond_float64_precision_are_distinguished() {
    let ints = |v: i64| arena(&v.to_le_bytes());
    let w = at(&[1], &[1], Dtype::I64);
    let (one, other) = (ints((1 << 60) + 1), ints(1 << 60));
    assert_eq!(compare(&one, &w, &other, &w, None, terms(Dtype::I64)).unwrap().wrong, 1);
    assert_eq!(compare(&one, &w, &one, &w, None, terms(Dtype::I64)).unwrap().wrong, 0);
}

/// exp(100) is finite in float64 and infinite in float32.
#[test]
fn an_overflow_in_float32_matches_a_finite_float64_reference() {
    let (g, w) = (at(&[3], &[1], Dtype::F32), at(&[3], &[1], Dtype::F64));
    let want = f64s(&[100f64.exp(), 1.0, -(100f64.exp())]);
    let honest = f32s(&[f32::INFINITY, 1.0, f32::NEG_INFINITY]);
    let told = compare(&honest, &g, &want, &w, None, terms(Dtype::F32)).unwrap();
    assert_eq!((told.wrong, told.max_abs_error), (0, 0.0));
    let all = f32s(&[f32::INFINITY; 3]);
    let told = compare(&all, &g, &want, &w, None, terms(Dtype::F32)).unwrap();
    assert_eq!((told.wrong, told.non_finite), (2, 2), "never where the truth is in range");
}

#[test]
fn own_precision_counts_only_where_it_contradicts_float64() {
    let (g, w) = (at(&[4], &[1], Dtype::F32), at(&[4], &[1], Dtype::F64));
    let own = at(&[4], &[1], Dtype::F32);
    let both = f64s(&[0.25, 0.5, 1.0, 2.0]);
    let mut bytes = Vec::new();
    let file = [0.25f64, 0.5, 1.0, 2.0];
    bytes.extend(file.iter().flat_map(|v| v.to_le_bytes()));
    // An overflow, an absorbed term, and two on which the precisions agree.
    bytes.extend([f32::NAN, 0.0, 1.0, 2.0].iter().flat_map(|v| v.to_le_bytes()));
    let truths = arena(&bytes);
    let own = Located { offset: 32, ..own };
    let wrong = |values: [f32; 4]| {
        let got = f32s(&values);
        compare(&got, &g, &truths, &w, Some(&own), terms(Dtype::F32)).unwrap().wrong
    };
    assert_eq!(wrong([0.25, 0.5, 1.0, 2.0]), 0, "as float64");
    assert_eq!(wrong([f32::NAN, 0.0, 1.0, 2.0]), 0, "as the reference");
    assert_eq!(wrong([f32::NAN, 0.5, f32::NAN, 2.0]), 1);
    assert_eq!(wrong([0.0, 0.0, 0.0, 0.0]), 3);
    let alone = compare(&f32s(&[f32::NAN; 4]), &g, &both, &w, None, terms(Dtype::F32)).unwrap();
    assert_eq!(alone.wrong, 4);
}

#[test]
fn mismatch_examples_hide_values_that_later_samples_repeat() {
    let (g, w) = (at(&[2], &[1], Dtype::F32), at(&[2], &[1], Dtype::F64));
    let told = compare(&f32s(&[0.0, 0.0]), &g, &f64s(&[862.5, 7.25]), &w, None, terms(Dtype::F32))
        .unwrap();
    let check = Check {
        name: "fresh inputs 1".to_owned(),
        family: warpwright_record::inputs::InputFamily::Own,
        passed: false,
        max_abs_error: 0.0,
        reference_max_abs_error: 0.0,
        lower_precision_max_abs_error: None,
        atol: 0.0,
        rtol: 0.0,
        truth: String::new(),
    };
    let text = |fresh| format!("{:?}", told.mismatch(0, &check, TIGHT, fresh).examples);
    assert!(text(true).contains("862.5"), "positive control");
    assert!(!text(false).contains("862.5") && !text(false).contains("7.25"), "{}", text(false));
}

#[test]
fn tiny_and_huge_numbers_have_an_exponent() {
    let told = [0.0, 0.5, -1.25e-12, 3e20, 1e14, f64::NAN].map(legible);
    assert_eq!(told, ["0", "0.5", "-1.25e-12", "3e20", "100000000000000", "NaN"]);
}
