use super::*;
use crate::lower::lower;
use crate::trace::{Trace, Traced};

const GELU: &str = include_str!("../../tests/fixtures/gelu.json");
const RMSNORM: &str = include_str!("../../tests/fixtures/rmsnorm.json");
const SOFTMAX: &str = include_str!("../../tests/fixtures/softmax.json");
const MLP: &str = include_str!("../../tests/fixtures/mlp.json");
const RESIDUAL_NORMS: &str = include_str!("../../tests/fixtures/residual_norms.json");

fn target(cpu: bool) -> Target {
    let processors = if cpu { 2 } else { 132 };
    let products = Products::Float32;
    Target { cpu, processors, cache_bytes: 50 << 20, shared_bytes: 227 << 10, products }
}

fn parse(text: &str) -> Result<Trace, String> {
    match crate::trace::parse(text)? {
        Traced::Single(trace) => Ok(*trace),
        Traced::Several(_) => Err("several graphs".to_owned()),
    }
}

/// One line per step: its kind, passes, and what it stores.
fn outline(trace: &str) -> String {
    let target = target(false);
    let graph = lower(&parse(trace).unwrap(), target.split()).unwrap();
    let plan = plan(&graph, Fusion::Full).unwrap();
    let names = |nodes: &[NodeId]| {
        nodes.iter().map(|n| graph.node(*n).name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let line = |step: &Step| match step {
        Step::Elementwise(k) => format!("elementwise {:?} -> {}", k.shape, names(&k.stores)),
        Step::Rows(k) => format!(
            "{} rows of {}, passes [{}] -> {}",
            k.frame.rows(),
            k.frame.cols(),
            k.passes.iter().map(|p| names(p)).collect::<Vec<_>>().join("; "),
            names(&step.stores())
        ),
        Step::Scan(k, _) => format!("scan of {} rows -> {}", k.frame.rows(), names(&step.stores())),
        Step::Heavy { name, .. } => format!("{name} -> {}", names(&step.stores())),
    };
    plan.steps.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_pointwise_chain_is_one_kernel() {
    insta::assert_snapshot!(outline(GELU), @"elementwise [64, 256] -> add_2");
}

#[test]
fn a_norm_is_one_row_program() {
    insta::assert_snapshot!(outline(RMSNORM), @"64 rows of 2048, passes [mean] -> mul_1");
}

#[test]
fn softmax_keeps_its_mask_and_scale_inside() {
    insta::assert_snapshot!(outline(SOFTMAX), @"128 rows of 512, passes [amax; sum_1] -> div_0");
}

#[test]
fn two_norms_and_two_residuals_share_their_rows() {
    insta::assert_snapshot!(outline(RESIDUAL_NORMS));
}

#[test]
fn the_kernels_read_as_written() {
    let target = target(false);
    for (name, trace) in [("gelu", GELU), ("rmsnorm", RMSNORM), ("softmax", SOFTMAX)] {
        let trace = parse(trace).unwrap();
        let graph = lower(&trace, target.split()).unwrap();
        let plan = plan(&graph, Fusion::Full).unwrap();
        let knobs = crate::tune::Knobs::default();
        let (trace, graph, plan) = (&trace, &graph, &plan);
        let of =
            crate::program::Of { trace, graph, plan, target: &target, knobs: &knobs, suffix: "" };
        let files = crate::program::write(&of).unwrap();
        let text: Vec<String> = files.iter().map(|(p, t)| format!("==> {p}\n{t}")).collect();
        insta::assert_snapshot!(name, text.join("\n"));
    }
}

/// The parts of activations come out of the kernels before, those of weights out of `prepare()`, and
/// the large product is summed in steps.
#[test]
fn large_products_are_written_in_parts() {
    let target = Target { products: Products::Split, ..target(false) };
    let draft = crate::draft::Draft::new(crate::trace::parse(MLP).unwrap(), target).unwrap();
    let files = |split| {
        let knobs = crate::tune::Knobs { split, ..crate::tune::Knobs::default() };
        draft.files(&knobs).unwrap()
    };
    let split = files(true);
    let names: Vec<&str> = split.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "kernels/matmul_add.cu",
            "kernels/matmul_mul_2_low.cu",
            "kernels/pointwise_up_weight_low.cu",
            "kernels/pointwise_x_low.cu",
            "model_new.py"
        ]
    );
    let (prepare, forward) = split["model_new.py"].split_once("def forward").unwrap();
    assert_eq!(prepare.matches("pointwise_up_weight_low_launcher(").count(), 2, "{prepare}");
    assert!(!forward.contains("weight_low_launcher"), "{forward}");
    let product: Vec<&str> = split["kernels/matmul_add.cu"]
        .lines()
        .skip_while(|l| !l.starts_with("extern"))
        .filter(|l| l.contains("for (") || l.contains("FAST_TF32"))
        .map(|l| l.trim().split(", &alpha, ").next().unwrap())
        .collect();
    insta::assert_snapshot!(product.join("\n"), @"
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasGemmStridedBatchedEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, 1024, 4096, 4096
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasGemmStridedBatchedEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, 1024, 4096, 4096
    for (int first = 0; first < 4096 && status == CUBLAS_STATUS_SUCCESS; first += 1024) {
    status = cublasGemmStridedBatchedEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, 1024, 4096, 1024
    ");
    assert!(files(false)["kernels/matmul_add.cu"].contains("cublasSgemm("));
}
