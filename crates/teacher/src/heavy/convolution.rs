//! Convolutions in one to three dims, forward and transposed.

use super::operand::{Place, locate, start_of};
use super::tile::{self, Fill, Pack, Tiles};
use super::{Channels, HeavyOp, cudnn};
use crate::emit::{HeavyContext, KernelFile};
use crate::index::{Expr, numel, unflatten};
use crate::ir::{Graph, NodeId, axis};

/// A convolution of `[batch, channels_in, ..]` with weights `[channels_out, channels_in / groups,
/// ..]`, or `[channels_in, channels_out / groups, ..]` if transposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Convolution {
    pub(crate) batch: i64,
    pub(crate) channels_in: i64,
    pub(crate) channels_out: i64,
    pub(crate) groups: i64,
    /// Spatial extents, one per dim.
    pub(crate) input: Vec<i64>,
    pub(crate) output: Vec<i64>,
    pub(crate) kernel: Vec<i64>,
    pub(crate) stride: Vec<i64>,
    pub(crate) padding: Vec<i64>,
    pub(crate) dilation: Vec<i64>,
    pub(crate) transposed: bool,
}

impl Convolution {
    pub(crate) fn rank(&self) -> usize {
        self.input.len()
    }

    pub(crate) fn shape_of(&self, position: usize) -> Vec<i64> {
        let (lead, rest) = match (position, self.transposed) {
            (0, _) => ([self.batch, self.channels_in], &self.input),
            (1, false) => ([self.channels_out, self.channels_in / self.groups], &self.kernel),
            (1, true) => ([self.channels_in, self.channels_out / self.groups], &self.kernel),
            _ => ([self.batch, self.channels_out], &self.output),
        };
        lead.iter().chain(rest).copied().collect()
    }

    /// Whether each output reads one input position: a matrix product per image.
    fn is_pointwise(&self) -> bool {
        !self.transposed
            && numel(&self.kernel) == 1
            && self.stride.iter().all(|s| *s == 1)
            && self.padding.iter().all(|p| *p == 0)
    }

    /// Whether some tap of some output is outside the input.
    fn leaves_input(&self) -> bool {
        self.transposed
            || (0..self.rank()).any(|d| {
                let last =
                    (self.output[d] - 1) * self.stride[d] + (self.kernel[d] - 1) * self.dilation[d];
                self.padding[d] > 0 || last >= self.input[d]
            })
    }

    /// Pads a list of spatial values to three dims, in front.
    fn three(values: &[i64], fill: i64) -> [i64; 3] {
        let mut out = [fill; 3];
        for (k, v) in values.iter().rev().enumerate().take(3) {
            out[2 - k] = *v;
        }
        out
    }

    /// Statements that compute, once per block, where the window of each column starts.
    fn windows(&self) -> Vec<String> {
        let [_, height, width] = Self::three(&self.output, 1);
        let (stride, padding) = (Self::three(&self.stride, 1), Self::three(&self.padding, 0));
        let start = |p: &str, d: usize| {
            if self.transposed {
                format!("{p} + {}", padding[d])
            } else {
                format!("{p} * {} - {}", stride[d], padding[d])
            }
        };
        let plane = height * width;
        vec![
            "int at_d[kBlockCols], at_h[kBlockCols], at_w[kBlockCols];  // first tap of each window".to_owned(),
            "for (int j = 0; j < kBlockCols; ++j) {".to_owned(),
            "const int p = col0 + j < kCols ? col0 + j : kCols - 1;".to_owned(),
            format!("at_d[j] = {};", start(&format!("p / {plane}"), 0)),
            format!("at_h[j] = {};", start(&format!("p / {width} % {height}"), 1)),
            format!("at_w[j] = {};", start(&format!("p % {width}"), 2)),
            "}".to_owned(),
        ]
    }

    /// Packs the windows: `b_pack[t][k][j]` is tap `k0 + k` of column `j`.
    fn gather(&self, base: i64) -> Pack {
        let op = self.clone();
        Box::new(move |read| {
            let [depth, height, width] = Self::three(&op.input, 1);
            let [_, kh, kw] = Self::three(&op.kernel, 1);
            let taps = numel(&op.kernel);
            let (stride, dilation) = (Self::three(&op.stride, 1), Self::three(&op.dilation, 1));
            let plane = depth * height * width;
            let group = op.channels_in / op.groups;
            let whole = op.channels_in * plane;
            let start = format!(
                "(int64_t)(batch / {}) * {whole} + (int64_t)(batch % {} * {group} + channel) * {plane} + {base}",
                op.groups, op.groups
            );
            let mut out = vec![
                "for (int k = 0; k < depth; ++k) {".to_owned(),
                format!("const int tap = (k0 + k) % {taps}, channel = (k0 + k) / {taps};"),
                format!("const int tap_d = tap / {} * {};", kh * kw, dilation[0]),
                format!(
                    "const int tap_h = tap / {kw} % {kh} * {}, tap_w = tap % {kw} * {};",
                    dilation[1], dilation[2]
                ),
                format!("const int64_t plane = {start};"),
                "for (int t = 0; t < kBlockCols / kTileCols; ++t) {".to_owned(),
                "for (int j = 0; j < kTileCols; ++j) {".to_owned(),
            ];
            let sign = if op.transposed { "-" } else { "+" };
            let mut tests = Vec::new();
            for (d, (letter, extent)) in
                [("d", depth), ("h", height), ("w", width)].into_iter().enumerate()
            {
                out.push(format!(
                    "const int u{letter} = at_{letter}[t * kTileCols + j] {sign} tap_{letter};"
                ));
                if op.transposed {
                    let s = stride[d];
                    tests.push(format!("(unsigned)u{letter} < {}u", extent * s));
                    if s > 1 {
                        tests.push(format!("u{letter} % {s} == 0"));
                        out.push(format!("const int i{letter} = u{letter} / {s};"));
                        continue;
                    }
                } else {
                    tests.push(format!("(unsigned)u{letter} < {extent}u"));
                }
                out.push(format!("const int i{letter} = u{letter};"));
            }
            let at = format!("(id * {height} + ih) * {width} + iw");
            if op.leaves_input() {
                // Bitwise, so that the loop has no branch; an element that exists is read anyway.
                let tests: Vec<String> = tests.iter().map(|t| format!("({t})")).collect();
                out.push(format!("const bool inside = {};", tests.join(" & ")));
                out.push(format!("const int at = inside ? {at} : 0;"));
                out.push(format!("const auto element = {};", read("plane + at")));
                out.push("b_pack[t][k][j] = inside ? element : 0;".to_owned());
            } else {
                out.push(format!("b_pack[t][k][j] = {};", read(&format!("plane + ({at})"))));
            }
            out.extend(["}".to_owned(), "}".to_owned(), "}".to_owned()]);
            out
        })
    }

    /// Packs the weights of a transposed convolution, whose rows are not contiguous.
    fn turned_weights(&self, base: i64) -> Pack {
        let op = self.clone();
        Box::new(move |read| {
            let taps = numel(&op.kernel);
            let (group_in, group_out) = (op.channels_in / op.groups, op.channels_out / op.groups);
            let at = format!(
                "{base} + (int64_t)(batch % {} * {group_in} + (k0 + k) / {taps}) * {} + row * {taps} + (k0 + k) % {taps}",
                op.groups,
                group_out * taps
            );
            vec![
                "for (int i = 0; i < kBlockRows; ++i) {".to_owned(),
                "const int row = row0 + i < kRows ? row0 + i : kRows - 1;".to_owned(),
                format!("for (int k = 0; k < depth; ++k) a_pack[i][k] = {};", read(&at)),
                "}".to_owned(),
            ]
        })
    }
}

impl HeavyOp for Convolution {
    fn name(&self) -> &'static str {
        if self.transposed { "conv_transpose" } else { "conv" }
    }

    fn takes_view(&self, position: usize, offset: &Expr) -> bool {
        start_of(offset, &self.shape_of(position)).is_some()
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn emit(&self, context: &mut HeavyContext<'_>) -> Result<KernelFile, String> {
        let place = |position| {
            let place = Place::of(&locate(context, position)?, &self.shape_of(position));
            place.ok_or_else(|| "an operand of the convolution is not contiguous".to_owned())
        };
        let (x, w) = (place(0)?, place(1)?);
        if !context.target.cpu {
            return cudnn::emit(self, context, &[x, w]);
        }
        let (groups, group_out) = (self.groups, self.channels_out / self.groups);
        let depth = self.channels_in / groups * numel(&self.kernel);
        let pixels = numel(&self.output);
        let batch = Expr::var("batch", self.batch * groups);
        let a = if self.transposed {
            Fill::Custom { buffer: w.buffer, lines: self.turned_weights(w.start) }
        } else {
            let base = batch.rem(groups).mul(group_out * depth).add_const(w.start);
            Fill::Strided { buffer: w.buffer, base, row: depth, col: 1 }
        };
        let (b, setup) = if self.is_pointwise() {
            // [batch, groups, channels, pixels]: consecutive batch entries lie side by side.
            let base = batch.mul(self.channels_in / groups * pixels).add_const(x.start);
            (Fill::Strided { buffer: x.buffer, base, row: pixels, col: 1 }, vec![])
        } else {
            (Fill::Custom { buffer: x.buffer, lines: self.gather(x.start) }, self.windows())
        };
        let output = self.output.clone();
        let index = move |batch: &Expr, row: &Expr, col: &Expr| {
            let mut at = vec![batch.div(groups), batch.rem(groups).mul(group_out).add(row)];
            at.extend(unflatten(col, &output));
            at
        };
        let purpose = format!(
            "{} of {} -> {}: kernel {kernel:?}, stride {stride:?}, padding {padding:?}, \
             dilation {dilation:?}, {groups} group(s).",
            if self.transposed { "Transposed convolution" } else { "Convolution" },
            self.channels_in,
            self.channels_out,
            kernel = self.kernel,
            stride = self.stride,
            padding = self.padding,
            dilation = self.dilation,
        );
        tile::emit(
            context,
            &Tiles {
                purpose,
                batch: self.batch * groups,
                rows: group_out,
                cols: pixels,
                depth,
                index: &index,
                setup,
                a,
                b,
            },
        )
    }

    fn channels(&self, _: &Graph, _: &[NodeId]) -> Option<Channels> {
        let of_weight = if self.transposed {
            let (group_in, group_out) =
                (self.channels_in / self.groups, self.channels_out / self.groups);
            axis(0, self.channels_in).div(group_in).mul(group_out).add(&axis(1, group_out))
        } else {
            axis(0, self.channels_out)
        };
        Some(Channels { axis: 1, weights: 1, of_weight })
    }
}
