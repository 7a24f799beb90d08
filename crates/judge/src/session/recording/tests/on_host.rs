//! Recordings of the cpu device.

use warpwright_plan::{Code, Memory, Op, Role};

use super::{KERNEL, MODEL, count_recorded, record_corpus, recorded_for};

fn recorded(kernel: &str, model: &str) -> Result<super::PlanOf, super::NoPlan> {
    recorded_for(Code::Host, kernel, model)
}

fn refused(kernel: &str, model: &str) -> String {
    recorded(kernel, model).map(|_| ()).unwrap_err().reason
}

#[test]
fn candidates_of_the_cpu_device_become_plans() {
    let plan = recorded(KERNEL, MODEL).unwrap().plan;
    let [node] = plan.forward.as_slice() else { panic!("{:?}", plan.forward) };
    let Op::Launch(launch) = &node.op else { panic!("{node:?}") };
    assert_eq!((launch.grid, launch.block), ([1, 1, 1], [256, 1, 1]));
    let roles: Vec<Role> = launch.args[..4]
        .iter()
        .map(|argument| plan.blocks[argument.relocations[0].to.block as usize].role)
        .collect();
    assert!(
        matches!(
            roles[..],
            [Role::Input(0), Role::Weight(0), Role::Constant(0), Role::Call { .. }]
        ),
        "{roles:?}"
    );
    assert_eq!(launch.args[4].bytes, 8u32.to_le_bytes());
    assert_eq!((plan.producer.kind.as_str(), plan.modules.len()), ("hostcuda", 1));
    assert_eq!(plan.modules[0].file, "alone/libkernels.so");
    assert!(plan.kernels[0].name.starts_with("add@0x"), "{:?}", plan.kernels);
}

/// Copies, fills and uploads, in forward and in `prepare()`; a table in `__constant__` memory.
#[test]
fn transfers_of_the_cpu_device_are_recorded() {
    let kernel = KERNEL
        .replace("__global__", "__constant__ float factor[2];\n__global__")
        .replace("y[i] = x[i]", "y[i] = factor[1] * x[i]")
        .replace(
            "  add<<<",
            "  const float both[2] = {2, 3};\n  cudaMemcpyToSymbolAsync(factor, both, 8, 0, cudaMemcpyHostToDevice, s);\n  \
             cudaMemsetAsync(y, 0, 16, s);\n  add<<<",
        );
    let model = MODEL.replace(
        "        return y",
        "        z = y.clone()\n        z[0].fill_(1.0)\n        return z",
    );
    let plan = recorded(&kernel, &model).unwrap().plan;
    let kinds: Vec<&str> = plan
        .forward
        .iter()
        .map(|node| match &node.op {
            Op::Upload(upload) => match &upload.to {
                Memory::Symbol { name, .. } => name.as_str(),
                Memory::Block(_) => "upload",
            },
            Op::Fill(_) => "fill",
            Op::Launch(_) => "launch",
            Op::Copy(_) => "copy",
            Op::Gemm(_) | Op::Gemv(_) | Op::Matmul(_) | Op::Convolution(_) => "library call",
        })
        .collect();
    assert_eq!(kinds, ["image", "fill", "launch", "copy", "fill"]);
}

#[test]
fn what_the_cpu_device_cannot_record_is_named() {
    let sums = MODEL.replace("        return y", "        return y if x.sum() > 0 else x");
    assert!(refused(KERNEL, &sums).contains("torch operator sum"), "{}", refused(KERNEL, &sums));
    let listed = MODEL.replace("        return y", "        y.tolist()\n        return y");
    let told = refused(KERNEL, &listed);
    assert!(told.contains("reads or writes device memory on the host"), "{told}");
    let on_stack = KERNEL.replace("  add<<<", "  float own[16] = {};\n  t = own;\n  add<<<");
    let told = refused(&on_stack, MODEL);
    assert!(told.contains("passes an address of the host to kernel add"), "{told}");
    let of_library = KERNEL
        .replace("__global__", "static float own[16];\n__global__")
        .replace("  add<<<", "  t = own;\n  add<<<");
    let told = refused(&of_library, MODEL);
    assert!(told.contains("passes an address of the host to kernel add"), "{told}");
    let closure = KERNEL.replace("  add<<<", "  if (n < 0) add<<<");
    let told = refused(&closure, MODEL);
    assert!(told.contains("launches nothing"), "{told}");
}

#[test]
fn long_most_honest_candidates_of_the_cpu_device_are_recorded() {
    let all = record_corpus("honest", Code::Host, |_| true);
    let (recorded, all) = (count_recorded(&all), all.len());
    println!("{recorded} of {all} honest candidates were recorded");
    assert!(recorded * 10 >= all * 8, "{recorded} of {all}");
}
