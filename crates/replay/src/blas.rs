//! Matrix products of cuBLAS, which is loaded when the first plan needs it.

pub(crate) mod lt;

use std::collections::BTreeSet;
use std::ffi::{c_int, c_longlong, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;
use lt::Lt;
use warpwright_plan::{Gemm, GemmScalar, Gemv, LaunchPlan, Op};

use crate::context::{Context, SCRATCH_BYTES};
use crate::driver::{Address, Handle};
use crate::failure::Failure;

/// Workspace of a handle, bytes: what torch gives it on such GPUs.
const WORKSPACE_BYTES: usize = 32 << 20;
/// Extent of the matrices of the product that warms a handle.
const WARM: c_int = 256;
/// `CUBLAS_GEMM_DEFAULT`.
const DEFAULT_ALGORITHM: c_int = -1;
/// `CUDA_R_64F`.
const DOUBLE: u32 = 1;
/// `CUBLAS_COMPUTE_32F`.
const COMPUTE_F32: c_int = 68;

/// Declares cuBLAS's functions, their types, and how they are found, in one table.
macro_rules! cublas {
    ($($field:ident = $symbol:literal ( $($kind:ty),* $(,)? );)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($kind),*) -> c_int,)*
            _library: Library,
        }
        impl Functions {
            fn load(path: &Path) -> Result<Self, Failure> {
                let fail = |error: libloading::Error| {
                    Failure::NoCublas(format!("{}: {error}", path.display()))
                };
                #[expect(unsafe_code, reason = "cuBLAS is a C library found at run time")]
                // SAFETY: the judge names NVIDIA's library, whose initialisers have no preconditions;
                // the symbols have the types that cublas_api.h (CUDA 12 and later) declares, and the
                // library is kept loaded beside the pointers taken from it.
                unsafe {
                    let library = Library::new(path).map_err(fail)?;
                    Ok(Self {
                        $($field: *library.get($symbol).map_err(fail)?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

cublas! {
    create = b"cublasCreate_v2"(*mut Handle);
    set_stream = b"cublasSetStream_v2"(Handle, Handle);
    set_workspace = b"cublasSetWorkspace_v2"(Handle, *mut c_void, usize);
    set_math = b"cublasSetMathMode"(Handle, c_int);
    gemm = b"cublasGemmEx"(
        Handle, c_int, c_int, c_int, c_int, c_int, *const c_void,
        *const c_void, c_int, c_int, *const c_void, c_int, c_int, *const c_void,
        *mut c_void, c_int, c_int, c_int, c_int,
    );
    gemm_batched = b"cublasGemmStridedBatchedEx"(
        Handle, c_int, c_int, c_int, c_int, c_int, *const c_void,
        *const c_void, c_int, c_int, c_longlong, *const c_void, c_int, c_int, c_longlong,
        *const c_void, *mut c_void, c_int, c_int, c_longlong, c_int, c_int, c_int,
    );
    gemm_pointers = b"cublasGemmBatchedEx"(
        Handle, c_int, c_int, c_int, c_int, c_int, *const c_void,
        *const c_void, c_int, c_int, *const c_void, c_int, c_int, *const c_void,
        *mut c_void, c_int, c_int, c_int, c_int, c_int,
    );
    single_vector = b"cublasSgemvStridedBatched"(
        Handle, c_int, c_int, c_int, *const c_void, *const c_void, c_int, c_longlong,
        *const c_void, c_int, c_longlong, *const c_void, *mut c_void, c_int, c_longlong, c_int,
    );
    double_vector = b"cublasDgemvStridedBatched"(
        Handle, c_int, c_int, c_int, *const c_void, *const c_void, c_int, c_longlong,
        *const c_void, c_int, c_longlong, *const c_void, *mut c_void, c_int, c_longlong, c_int,
    );
    single_vector_alone = b"cublasSgemv_v2"(
        Handle, c_int, c_int, c_int, *const c_void, *const c_void, c_int, *const c_void, c_int,
        *const c_void, *mut c_void, c_int,
    );
    double_vector_alone = b"cublasDgemv_v2"(
        Handle, c_int, c_int, c_int, *const c_void, *const c_void, c_int, *const c_void, c_int,
        *const c_void, *mut c_void, c_int,
    );
}

/// A product, with its numbers as cuBLAS takes them.
#[derive(Debug)]
pub(crate) struct Product {
    transpose: [c_int; 2],
    sizes: [c_int; 3],
    types: [c_int; 3],
    leading: [c_int; 3],
    strides: [c_longlong; 3],
    batch: c_int,
    /// Sixteen bytes, the most that cuBLAS reads for any type; the value comes first.
    alpha: [u64; 2],
    beta: [u64; 2],
    compute: c_int,
    math: c_int,
    algorithm: c_int,
    /// Whether the operands are arrays of addresses.
    pointers: bool,
}

/// A product with a vector, with its numbers as cuBLAS takes them.
#[derive(Debug)]
pub(crate) struct VectorProduct {
    transpose: c_int,
    sizes: [c_int; 2],
    leading: c_int,
    steps: [c_int; 2],
    strides: [c_longlong; 3],
    batch: c_int,
    double: bool,
    alpha: [u64; 2],
    beta: [u64; 2],
    math: c_int,
}

impl VectorProduct {
    /// Fails where a number is beyond those of cuBLAS's functions.
    pub(crate) fn of(gemv: &Gemv) -> Result<Self, Failure> {
        let large = |_| Failure::Plan("a product is larger than cuBLAS takes".to_owned());
        let number = |value: i64| c_int::try_from(value).map_err(large);
        let [rows, columns] = gemv.sizes.map(number);
        let [step, made_step] = gemv.steps.map(number);
        Ok(Self {
            transpose: c_int::from(gemv.transpose),
            sizes: [rows?, columns?],
            leading: number(gemv.leading)?,
            steps: [step?, made_step?],
            strides: gemv.strides,
            batch: number(gemv.batch.into())?,
            double: gemv.dtype == DOUBLE,
            alpha: bits(gemv.alpha),
            beta: bits(gemv.beta),
            math: number(gemv.math.into())?,
        })
    }
}

impl Product {
    /// Fails where a number is beyond those of cuBLAS's functions.
    pub(crate) fn of(gemm: &Gemm) -> Result<Self, Failure> {
        let large = |_| Failure::Plan("a matrix product is larger than cuBLAS takes".to_owned());
        let all = |numbers: [i64; 3]| -> Result<[c_int; 3], Failure> {
            let [a, b, c] = numbers.map(c_int::try_from);
            Ok([a.map_err(large)?, b.map_err(large)?, c.map_err(large)?])
        };
        let number = |value: u32| c_int::try_from(value).map_err(large);
        let [a, b, c] = gemm.types.map(|kind| number(kind.0));
        Ok(Self {
            transpose: gemm.transpose.map(c_int::from),
            sizes: all(gemm.sizes)?,
            types: [a?, b?, c?],
            leading: all(gemm.leading)?,
            strides: gemm.strides,
            batch: number(gemm.batch)?,
            alpha: bits(gemm.alpha),
            beta: bits(gemm.beta),
            compute: number(gemm.compute)?,
            math: number(gemm.math)?,
            algorithm: gemm.algorithm,
            pointers: gemm.pointers,
        })
    }
}

fn bits(scalar: GemmScalar) -> [u64; 2] {
    let low = match scalar {
        GemmScalar::F32(bits) => u64::from(bits),
        GemmScalar::F64(bits) => bits,
        GemmScalar::I32(value) => u64::from(value.cast_unsigned()),
        GemmScalar::F16(bits) => u64::from(bits),
    };
    [low, 0]
}

/// Streams in which a plan multiplies matrices.
pub(crate) fn streams(plan: &LaunchPlan) -> BTreeSet<usize> {
    let nodes = plan.prepare.iter().chain(&plan.forward);
    let multiplies =
        nodes.filter(|node| matches!(node.op, Op::Gemm(_) | Op::Gemv(_) | Op::Matmul(_)));
    multiplies.map(|node| node.stream as usize).collect()
}

/// cuBLAS, with a handle for each stream that has needed one.
pub(crate) struct Blas {
    functions: Functions,
    lanes: Vec<Option<Lane>>,
    path: PathBuf,
    lt: Option<Lt>,
}

/// What a stream has.
#[derive(Clone, Copy)]
struct Lane {
    handle: Handle,
    workspace: Address,
}

impl Blas {
    pub(crate) fn load(path: &Path) -> Result<Self, Failure> {
        let functions = Functions::load(path)?;
        Ok(Self { functions, lanes: Vec::new(), path: path.to_owned(), lt: None })
    }

    /// Makes and warms the handles that these streams lack, and products of cuBLASLt ready. The context has the
    /// streams, and is idle.
    pub(crate) fn provide(
        &mut self,
        context: &Context,
        streams: &BTreeSet<usize>,
        shapes: &[lt::Shape],
    ) -> Result<(), Failure> {
        if let Some(lt) = &mut self.lt {
            lt.provide(shapes)?;
        } else if !shapes.is_empty() {
            self.lt.insert(Lt::load(&self.path)?).provide(shapes)?;
        }
        for index in streams {
            if self.lanes.get(*index).copied().flatten().is_some() {
                continue;
            }
            let stream = context.streams().get(*index).copied();
            let stream =
                stream.ok_or_else(|| Failure::Plan(format!("stream {index} has not been made")))?;
            let lane = self.lane(context, stream)?;
            if self.lanes.len() <= *index {
                self.lanes.resize(*index + 1, None);
            }
            if let Some(place) = self.lanes.get_mut(*index) {
                *place = Some(lane);
            }
            self.warm(context, *index)?;
        }
        Ok(())
    }

    /// Queues fills of all workspaces, whose contents no product depends on.
    pub(crate) fn overwrite(&self, context: &Context) -> Result<(), Failure> {
        let mut lanes = self.lanes.iter().flatten();
        lanes.try_for_each(|lane| context.overwrite(lane.workspace, WORKSPACE_BYTES))
    }

    fn lane(&self, context: &Context, stream: Handle) -> Result<Lane, Failure> {
        let (mut handle, mut workspace) = (std::ptr::null_mut(), 0);
        let f = &self.functions;
        #[expect(unsafe_code, reason = "calls of the CUDA driver and of cuBLAS")]
        // SAFETY: the pointers are to live locals; the workspace is as long as said, is aligned to 256
        // bytes, and is never freed. The stream resets the workspace, so it is set first.
        unsafe {
            let alloc = (context.driver.memory_alloc)(&raw mut workspace, WORKSPACE_BYTES);
            context.driver.check("allocate a workspace of cuBLAS", alloc)?;
            check("create a handle of cuBLAS", (f.create)(&raw mut handle))?;
            check("give cuBLAS a stream", (f.set_stream)(handle, stream))?;
            let set = (f.set_workspace)(handle, pointer(workspace), WORKSPACE_BYTES);
            check("give cuBLAS a workspace", set)?;
        }
        Ok(Lane { handle, workspace })
    }

    /// cuBLAS loads what it needs with the first product.
    fn warm(&self, context: &Context, stream: usize) -> Result<(), Failure> {
        let bytes = u64::from(WARM.unsigned_abs()).pow(2) * 4;
        let words = [0, 1, 2].map(|operand| context.scratch + operand * bytes);
        let product = Product {
            transpose: [0, 0],
            sizes: [WARM; 3],
            types: [0; 3],
            leading: [WARM; 3],
            strides: [0; 3],
            batch: 1,
            alpha: bits(GemmScalar::F32(1.0f32.to_bits())),
            beta: [0; 2],
            compute: COMPUTE_F32,
            math: 0,
            algorithm: DEFAULT_ALGORITHM,
            pointers: false,
        };
        self.multiply(stream, &product, words)?;
        context.synchronise("wait for cuBLAS")
    }

    /// Queues a product in its stream.
    pub(crate) fn multiply(
        &self,
        stream: usize,
        product: &Product,
        operands: [Address; 3],
    ) -> Result<(), Failure> {
        let Lane { handle, .. } = self.of(stream)?;
        let cublas = &self.functions;
        let [op_a, op_b] = product.transpose;
        let [rows, columns, length] = product.sizes;
        let [at_a, at_b, at_c] = operands.map(pointer);
        let [type_a, type_b, type_c] = product.types;
        let [lead_a, lead_b, lead_c] = product.leading;
        let [step_a, step_b, step_c] = product.strides;
        let (alpha, beta) = (product.alpha.as_ptr().cast(), product.beta.as_ptr().cast());
        let Product { batch, compute, math, algorithm, .. } = *product;
        #[expect(unsafe_code, reason = "calls of cuBLAS")]
        // SAFETY: the handle is alive; the factors are as long as any type's; the operands are device
        // addresses, which cuBLAS does not follow on the host.
        let code = unsafe {
            check("set cuBLAS's math mode", (cublas.set_math)(handle, math))?;
            if product.pointers {
                (cublas.gemm_pointers)(
                    handle, op_a, op_b, rows, columns, length, alpha, at_a, type_a, lead_a, at_b,
                    type_b, lead_b, beta, at_c, type_c, lead_c, batch, compute, algorithm,
                )
            } else if batch == 1 {
                (cublas.gemm)(
                    handle, op_a, op_b, rows, columns, length, alpha, at_a, type_a, lead_a, at_b,
                    type_b, lead_b, beta, at_c, type_c, lead_c, compute, algorithm,
                )
            } else {
                (cublas.gemm_batched)(
                    handle, op_a, op_b, rows, columns, length, alpha, at_a, type_a, lead_a, step_a,
                    at_b, type_b, lead_b, step_b, beta, at_c, type_c, lead_c, step_c, batch,
                    compute, algorithm,
                )
            }
        };
        check("multiply matrices", code)
    }

    /// Queues a product with a vector in its stream.
    pub(crate) fn multiply_vector(
        &self,
        stream: usize,
        product: &VectorProduct,
        operands: [Address; 3],
    ) -> Result<(), Failure> {
        let Lane { handle, .. } = self.of(stream)?;
        let cublas = &self.functions;
        let [rows, columns] = product.sizes;
        let [matrix, vector, result] = operands.map(pointer);
        let [step, made_step] = product.steps;
        let [matrices, vectors, results] = product.strides;
        let (alpha, beta) = (product.alpha.as_ptr().cast(), product.beta.as_ptr().cast());
        let VectorProduct { transpose, leading, batch, double, math, .. } = *product;
        #[expect(unsafe_code, reason = "calls of cuBLAS")]
        // SAFETY: as in `multiply`.
        let code = unsafe {
            check("set cuBLAS's math mode", (cublas.set_math)(handle, math))?;
            if batch == 1 {
                let run =
                    if double { cublas.double_vector_alone } else { cublas.single_vector_alone };
                run(
                    handle, transpose, rows, columns, alpha, matrix, leading, vector, step, beta,
                    result, made_step,
                )
            } else {
                let run = if double { cublas.double_vector } else { cublas.single_vector };
                run(
                    handle, transpose, rows, columns, alpha, matrix, leading, matrices, vector,
                    step, vectors, beta, result, made_step, results, batch,
                )
            }
        };
        check("multiply a matrix and a vector", code)
    }

    /// Queues a product of cuBLASLt in its stream, which has this number and handle.
    pub(crate) fn multiply_lt(
        &self,
        (number, stream): (usize, Handle),
        index: usize,
        places: &[Address],
    ) -> Result<(), Failure> {
        let Lane { handle, workspace } = self.of(number)?;
        let Some(lt) = &self.lt else {
            return Err(Failure::Plan("cuBLASLt was not loaded".to_owned()));
        };
        // Products of cuBLAS in this stream have the same workspace, one after the other.
        let lane = lt::Lane { handle, stream, workspace, bytes: WORKSPACE_BYTES };
        lt.multiply(&lane, index, places)
    }

    fn of(&self, stream: usize) -> Result<Lane, Failure> {
        let lane = self.lanes.get(stream).copied().flatten();
        lane.ok_or_else(|| Failure::Plan(format!("stream {stream} has no handle of cuBLAS")))
    }
}

fn pointer(address: Address) -> *mut c_void {
    std::ptr::without_provenance_mut(address as usize)
}

fn check(action: &str, code: c_int) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure::Cublas { action: action.to_owned(), code }) }
}

const _: () = assert!(3 * (WARM * WARM * 4) as usize <= SCRATCH_BYTES);
