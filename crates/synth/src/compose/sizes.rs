//! Sizes that are typical of models.

use rand::RngExt;
use rand::rngs::StdRng;

/// Candidate sizes of each dimension, by rank: batch or rows first, features or pixels last, as in
/// torch's layouts. Some are not powers of two, as in real models.
const BATCHES: &[u64] = &[4, 8, 16, 32, 64];
const ROWS: &[u64] = &[512, 1000, 1024, 2048, 4096, 8192, 16384];
const FEATURES: &[u64] = &[256, 384, 512, 768, 1000, 1024, 1536, 2048, 3072, 4096, 8192];
const LENGTHS: &[u64] = &[64, 128, 197, 256, 384, 512, 1024, 2048];
const WIDTHS: &[u64] = &[64, 96, 128, 192, 256, 320, 384, 512, 768, 1024];
const CHANNELS: &[u64] = &[16, 24, 32, 48, 64, 96, 128, 192, 256];
const PIXELS: &[u64] = &[14, 16, 28, 32, 48, 56, 64, 96, 112, 128, 224];
const VOXELS: &[u64] = &[8, 12, 16, 24, 32];
const LONG: &[u64] = &[1 << 18, 1_000_000, 1 << 20, 3 << 20, 1 << 22, 1 << 24];

fn one(sizes: &[u64], random: &mut StdRng) -> u64 {
    sizes[random.random_range(0..sizes.len())]
}

/// A shape of that rank, with between `least` and `most` elements if possible.
pub(super) fn shape(rank: usize, least: u64, most: u64, random: &mut StdRng) -> Vec<u64> {
    let mut shape = Vec::new();
    for _ in 0..32 {
        shape = draw(rank, random);
        let elements: u64 = shape.iter().product();
        if (least..=most).contains(&elements) {
            return shape;
        }
    }
    // Halving keeps sizes round; every dimension can give, the largest first.
    while shape.iter().product::<u64>() > most {
        let Some(largest) = shape.iter_mut().max() else { break };
        if *largest <= 4 {
            break;
        }
        *largest = (*largest / 2).next_multiple_of(4);
        if *largest <= 4 {
            break;
        }
    }
    shape
}

fn draw(rank: usize, random: &mut StdRng) -> Vec<u64> {
    match rank {
        0 => Vec::new(),
        1 => vec![one(LONG, random)],
        2 => vec![one(ROWS, random), one(FEATURES, random)],
        3 => vec![one(BATCHES, random), one(LENGTHS, random), one(WIDTHS, random)],
        4 => {
            let side = one(PIXELS, random);
            vec![one(BATCHES, random), one(CHANNELS, random), side, side]
        }
        _ => {
            let side = one(VOXELS, random);
            let mut shape = vec![one(&BATCHES[..3], random), one(&CHANNELS[..5], random)];
            shape.resize(rank, side);
            shape
        }
    }
}

/// A size that no value determines, near `like`: the width of a hidden layer.
pub(super) fn free(like: u64, random: &mut StdRng) -> u64 {
    let near: Vec<u64> = CHANNELS
        .iter()
        .chain(FEATURES)
        .copied()
        .filter(|size| *size * 4 >= like && *size <= like * 4)
        .collect();
    if near.is_empty() { like.max(4) } else { one(&near, random) }
}
