//! Writing to the KV cache, and attention to it.

use super::*;

struct Kept {
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
}

impl Kept {
    fn new([rows, heads, groups, width]: [i64; 4], room: i64) -> Self {
        let kept = || half(&random(&[rows, room, groups, width], 1.0));
        let positions = Tensor::randint(room, [rows], (Kind::Int64, Device::Cpu));
        // The first and the last possible position.
        let _ = positions.get(0).fill_(0);
        let _ = positions.get(-1).fill_(room - 1);
        Self {
            queries: half(&random(&[rows, heads, width], 2.0)),
            keys: kept(),
            values: kept(),
            positions,
        }
    }

    fn attended(&self, kernels: Kernels) -> Tensor {
        kernels.attend(&self.queries, (&self.keys, &self.values), &self.positions).unwrap()
    }

    /// In float64, one row and one head at a time.
    fn wanted(&self) -> Tensor {
        let [rows, heads, width] = self.queries.size()[..] else { unreachable!() };
        let each = heads / self.keys.size()[2];
        let one = |row: i64, head: i64| {
            let kept = self.positions.int64_value(&[row]) + 1;
            let of = |all: &Tensor| {
                let all = all.get(row).narrow(0, 0, kept).select(1, head / each);
                all.to_kind(Kind::Double)
            };
            let query = self.queries.get(row).get(head).to_kind(Kind::Double);
            let odds = of(&self.keys).matmul(&query) / (width as f64).sqrt();
            odds.softmax(0, Kind::Double).matmul(&of(&self.values))
        };
        let all: Vec<Tensor> =
            (0..rows).flat_map(|row| (0..heads).map(move |head| one(row, head))).collect();
        half(&Tensor::stack(&all, 0).view([rows, heads, width]))
    }
}

#[test]
fn attention_covers_the_cached_tokens_of_its_row() {
    let kernels = on_host();
    tch::manual_seed(11);
    let shapes = [
        ([5, 6, 2, 32], 70),
        ([3, 8, 8, 64], 131),
        ([2, 4, 1, 256], 9),
        ([3, 2, 1, 8], 300),
        ([1, 1, 1, 128], 1),
    ];
    for (shape, room) in shapes {
        let kept = Kept::new(shape, room);
        let found = kept.attended(kernels);
        assert_near(&found, &kept.wanted());
        // Positions beyond the row's length do not count.
        let beyond = Tensor::arange(room, (Kind::Int64, Device::Cpu))
            .gt_tensor(&kept.positions.unsqueeze(1));
        for all in [&kept.keys, &kept.values] {
            let _ =
                all.shallow_clone().masked_fill_(&beyond.view([shape[0], room, 1, 1]), f64::NAN);
        }
        assert_eq!(kept.attended(kernels), found);
    }
}

/// A key with by far the highest score determines the output, at any position.
#[test]
fn dominant_key_determines_attention_output() {
    let kernels = on_host();
    tch::manual_seed(12);
    let mut kept = Kept::new([8, 1, 1, 16], 200);
    kept.queries = kept.queries.ones_like();
    kept.positions = kept.positions.full_like(199);
    for (row, at) in [0, 1, 15, 16, 100, 127, 128, 199].into_iter().enumerate() {
        let _ = kept.keys.get(row as i64).get(at).fill_(100.0);
        let wanted = kept.values.get(row as i64).get(at);
        assert_eq!(kept.attended(kernels).get(row as i64), wanted, "{at}");
    }
}

#[test]
fn keys_and_values_are_cached_by_position() {
    let kernels = on_host();
    tch::manual_seed(6);
    for (rows, heads, groups, width) in [(16, 6, 2, 32), (5, 8, 8, 64), (3, 4, 1, 128)] {
        let turns = Turns::new(rows, heads, groups, width);
        let room = 20;
        let [keys, values] =
            [(), ()].map(|()| Tensor::zeros([rows, room, groups, width], (HALF, Device::Cpu)));
        let by = turns.by(turns.norms.each_ref());
        let queries = kernels.turn_keep(&turns.every, (&keys, &values), by).unwrap();
        let (q, k, v) = kernels.turn(&turns.every, heads, by).unwrap();
        assert_eq!(queries, q);
        let each = Tensor::arange(rows, (Kind::Int64, Device::Cpu));
        for (kept, wanted) in [(&keys, k), (&values, v)] {
            let at = [Some(&each), Some(&turns.positions)];
            assert_eq!(kept.index(&at), wanted);
            let elsewhere = kept.index_put(&at, &wanted.zeros_like(), false);
            assert_eq!(elsewhere, elsewhere.zeros_like());
        }
    }
}
