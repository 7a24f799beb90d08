//! Products of cuBLASLt. A handle of cuBLAS is one of cuBLASLt too, and the library is loaded with cuBLAS.

use std::cell::Cell;
use std::ffi::{c_float, c_int, c_void};
use std::path::Path;

use libloading::Library;
use warpwright_plan::{LaunchPlan, LibraryCall, LtMatrix, Matmul, Op};

use super::{bits, check, pointer};
use crate::driver::{Address, Handle};
use crate::failure::Failure;

/// A product without its addresses.
pub(crate) type Shape = Matmul<()>;

/// Most different products of a plan: cuBLASLt takes up to milliseconds to choose for each.
const MAX_SHAPES: usize = 512;
/// What addresses are aligned to that are multiples of more: cuBLASLt looks no further.
const MAX_ALIGN: u32 = 256;
/// `CUBLASLT_MATMUL_DESC_TRANSA`, `_TRANSB`, `_EPILOGUE` and `_BIAS_POINTER`.
const TRANSPOSES: [c_int; 2] = [3, 4];
const EPILOGUE: c_int = 7;
const BIAS_POINTER: c_int = 8;
/// `CUBLASLT_MATRIX_LAYOUT_ORDER`, `_BATCH_COUNT` and `_STRIDED_BATCH_OFFSET`.
const ORDER: c_int = 1;
const BATCH: c_int = 5;
const STRIDE: c_int = 6;
/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`, and `_MIN_ALIGNMENT_A_BYTES`, which those of `B`, `C` and `D` follow.
const MAX_WORKSPACE: c_int = 1;
const ALIGNMENT: c_int = 5;
/// `CUBLAS_STATUS_INVALID_VALUE` and `CUBLAS_STATUS_NOT_SUPPORTED`.
const REFUSALS: [c_int; 2] = [7, 15];

type Set = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> c_int;
type End = unsafe extern "C" fn(Handle) -> c_int;

/// `cublasLtMatmulHeuristicResult_t`, which begins with `cublasLtMatmulAlgo_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Found {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: c_float,
    reserved: [c_int; 4],
}

// The size of cublasLt.h on 64-bit machines.
const _: () = assert!(size_of::<Found>() == 96);

/// Declares the functions, their types, and how they are found, in one table.
macro_rules! lt {
    ($($field:ident = $symbol:literal $kind:ty;)*) => {
        struct Functions {
            $($field: $kind,)*
            _library: Library,
        }
        impl Functions {
            fn load(path: &Path) -> Result<Self, Failure> {
                let fail = |error: libloading::Error| {
                    Failure::NoCublas(format!("{}: {error}", path.display()))
                };
                #[expect(unsafe_code, reason = "cuBLASLt is a C library found at run time")]
                // SAFETY: the judge names NVIDIA's library, whose initialisers have no preconditions; symbols
                // are looked for in what it needs, too. They have the types that cublasLt.h (CUDA 12 and later)
                // declares, and the library is kept loaded beside the pointers taken from it.
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

lt! {
    create = b"cublasLtMatmulDescCreate" unsafe extern "C" fn(*mut Handle, c_int, c_int) -> c_int;
    set = b"cublasLtMatmulDescSetAttribute" Set;
    end = b"cublasLtMatmulDescDestroy" End;
    create_layout = b"cublasLtMatrixLayoutCreate"
        unsafe extern "C" fn(*mut Handle, c_int, u64, u64, i64) -> c_int;
    set_layout = b"cublasLtMatrixLayoutSetAttribute" Set;
    end_layout = b"cublasLtMatrixLayoutDestroy" End;
    create_preference = b"cublasLtMatmulPreferenceCreate"
        unsafe extern "C" fn(*mut Handle) -> c_int;
    set_preference = b"cublasLtMatmulPreferenceSetAttribute" Set;
    end_preference = b"cublasLtMatmulPreferenceDestroy" End;
    choose = b"cublasLtMatmulAlgoGetHeuristic"
        unsafe extern "C" fn(
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Found, *mut c_int,
        ) -> c_int;
    run = b"cublasLtMatmul"
        unsafe extern "C" fn(
            Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle,
            *const c_void, *const c_void, Handle, *mut c_void, Handle, *const [u64; 8], *mut c_void,
            usize, Handle,
        ) -> c_int;
}

/// The different products of a plan, in order.
pub(crate) fn shapes(plan: &LaunchPlan) -> Vec<Shape> {
    let mut found = Vec::new();
    for node in plan.prepare.iter().chain(&plan.forward) {
        let Op::Matmul(matmul) = &node.op else { continue };
        let shape = shape(matmul);
        // More are refused.
        if found.len() <= MAX_SHAPES && !found.contains(&shape) {
            found.push(shape);
        }
    }
    found
}

/// A product without its addresses.
pub(crate) fn shape(matmul: &Matmul) -> Shape {
    let Ok(shape) = matmul.try_map::<(), std::convert::Infallible>(&mut |_| Ok(()));
    shape
}

/// cuBLASLt, with the products of the plan that is loaded.
pub(super) struct Lt {
    functions: Functions,
    made: Vec<Made>,
    owned: Vec<(End, Handle)>,
}

/// A product that is ready.
struct Made {
    description: Handle,
    layouts: [Handle; 4],
    has_bias: bool,
    alpha: [u64; 2],
    beta: [u64; 2],
    /// Once it ran.
    algorithm: Cell<Option<[u64; 8]>>,
}

/// What a product runs with.
pub(super) struct Lane {
    pub(super) handle: Handle,
    pub(super) stream: Handle,
    pub(super) workspace: Address,
    pub(super) bytes: usize,
}

impl Lt {
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        Ok(Self { functions: Functions::load(path)?, made: Vec::new(), owned: Vec::new() })
    }

    /// Makes products ready, in place of those before. None may be running.
    pub(super) fn provide(&mut self, shapes: &[Shape]) -> Result<(), Failure> {
        self.made.clear();
        for (end, descriptor) in self.owned.drain(..) {
            #[expect(unsafe_code, reason = "calls of cuBLASLt")]
            // SAFETY: it was made by this library, and nothing uses it any more.
            unsafe {
                end(descriptor);
            }
        }
        if shapes.len() > MAX_SHAPES {
            let why = format!("it has more than {MAX_SHAPES} different products of cuBLASLt");
            return Err(Failure::Plan(why));
        }
        for shape in shapes {
            let made = self.make(shape)?;
            self.made.push(made);
        }
        Ok(())
    }

    fn make(&mut self, shape: &Shape) -> Result<Made, Failure> {
        let lt = &self.functions;
        let mut description = std::ptr::null_mut();
        let compute = number(shape.compute.into())?;
        #[expect(unsafe_code, reason = "calls of cuBLASLt")]
        // SAFETY: `description` outlives the call.
        let code = unsafe { (lt.create)(&raw mut description, compute, scale_of(shape)) };
        check("describe a product", code)?;
        self.owned.push((lt.end, description));
        for (attribute, transpose) in TRANSPOSES.into_iter().zip(shape.transpose) {
            set(lt.set, description, attribute, &c_int::from(transpose))?;
        }
        set(lt.set, description, EPILOGUE, &shape.epilogue)?;
        let mut layouts = [std::ptr::null_mut(); 4];
        for (layout, matrix) in layouts.iter_mut().zip(&shape.matrices) {
            *layout = self.layout(matrix)?;
        }
        Ok(Made {
            description,
            layouts,
            has_bias: shape.bias.is_some(),
            alpha: bits(shape.alpha),
            beta: bits(shape.beta),
            algorithm: Cell::new(None),
        })
    }

    fn layout(&mut self, matrix: &LtMatrix<()>) -> Result<Handle, Failure> {
        let lt = &self.functions;
        let mut layout = std::ptr::null_mut();
        let [rows, columns] = matrix.sizes.map(i64::unsigned_abs);
        let dtype = number(matrix.dtype.into())?;
        #[expect(unsafe_code, reason = "calls of cuBLASLt")]
        // SAFETY: `layout` outlives the call.
        let code =
            unsafe { (lt.create_layout)(&raw mut layout, dtype, rows, columns, matrix.leading) };
        check("describe a matrix", code)?;
        self.owned.push((lt.end_layout, layout));
        set(lt.set_layout, layout, ORDER, &c_int::from(matrix.row_major))?;
        set(lt.set_layout, layout, BATCH, &number(matrix.batch.into())?)?;
        set(lt.set_layout, layout, STRIDE, &matrix.stride)?;
        Ok(layout)
    }

    /// Queues the product of this number. The places are those of [`LibraryCall::try_map`].
    pub(super) fn multiply(
        &self,
        lane: &Lane,
        index: usize,
        places: &[Address],
    ) -> Result<(), Failure> {
        let (Some(made), Some((matrices, rest))) =
            (self.made.get(index), places.split_first_chunk::<4>())
        else {
            return Err(Failure::Plan("a product of cuBLASLt was not made ready".to_owned()));
        };
        let lt = &self.functions;
        if made.has_bias {
            let missing = || Failure::Plan("a product of cuBLASLt has no bias".to_owned());
            let bias = rest.first().ok_or_else(missing)?;
            set(lt.set, made.description, BIAS_POINTER, bias)?;
        }
        let algorithm = if let Some(algorithm) = made.algorithm.get() {
            algorithm
        } else {
            let chosen = self.choose(lane, made, *matrices)?;
            made.algorithm.set(Some(chosen));
            chosen
        };
        let [of_a, of_b, of_c, of_d] = made.layouts;
        let (alpha, beta) = (made.alpha.as_ptr().cast(), made.beta.as_ptr().cast());
        let [a, b, c, d] = matrices.map(pointer);
        #[expect(unsafe_code, reason = "calls of cuBLASLt")]
        // SAFETY: handle, descriptors and stream are alive; the factors are as long as any type's; the operands
        // are device addresses, which cuBLASLt does not follow on the host; the workspace is as long as said.
        let code = unsafe {
            (lt.run)(
                lane.handle,
                made.description,
                alpha,
                a,
                of_a,
                b,
                of_b,
                beta,
                c,
                of_c,
                d,
                of_d,
                &raw const algorithm,
                pointer(lane.workspace),
                lane.bytes,
                lane.stream,
            )
        };
        refused(code)?;
        check("multiply matrices by cuBLASLt", code)
    }

    /// The algorithm that cuBLASLt expects to be fastest for these addresses.
    fn choose(&self, lane: &Lane, made: &Made, places: [Address; 4]) -> Result<[u64; 8], Failure> {
        let lt = &self.functions;
        let mut preference = std::ptr::null_mut();
        #[expect(unsafe_code, reason = "calls of cuBLASLt")]
        // SAFETY: `preference` outlives the call.
        check("describe a choice", unsafe { (lt.create_preference)(&raw mut preference) })?;
        let mut found = Found::default();
        let mut count: c_int = 0;
        let set_all = || {
            set(lt.set_preference, preference, MAX_WORKSPACE, &(lane.bytes as u64))?;
            (ALIGNMENT..).zip(places).try_for_each(|(attribute, at)| {
                let aligned = 1u32 << at.trailing_zeros().min(MAX_ALIGN.trailing_zeros());
                set(lt.set_preference, preference, attribute, &aligned)
            })
        };
        let was_set = set_all();
        let [of_a, of_b, of_c, of_d] = made.layouts;
        #[expect(unsafe_code, reason = "calls of cuBLASLt")]
        // SAFETY: all descriptors are alive; there is room for the one result that is asked for.
        let code = unsafe {
            let code = (lt.choose)(
                lane.handle,
                made.description,
                of_a,
                of_b,
                of_c,
                of_d,
                preference,
                1,
                &raw mut found,
                &raw mut count,
            );
            (lt.end_preference)(preference);
            code
        };
        was_set?;
        refused(code)?;
        check("choose an algorithm of cuBLASLt", code)?;
        if count < 1 || found.state != 0 {
            return Err(Failure::Plan("cuBLASLt has no algorithm for a product".to_owned()));
        }
        Ok(found.algorithm)
    }
}

/// What cuBLASLt does not take is no plan for this replayer.
fn refused(code: c_int) -> Result<(), Failure> {
    if REFUSALS.contains(&code) {
        return Err(Failure::Plan(format!("cuBLASLt refuses a product: status {code}")));
    }
    Ok(())
}

/// `cudaDataType_t` of the factors, which follows from how the product is computed.
fn scale_of(shape: &Shape) -> c_int {
    use warpwright_plan::GemmScalar::{F16, F32, F64, I32};
    match shape.alpha {
        F32(_) => 0,
        F64(_) => 1,
        F16(_) => 2,
        I32(_) => 10,
    }
}

/// Sets an attribute to a number of the length that it has.
fn set<T: Copy>(set: Set, of: Handle, attribute: c_int, value: &T) -> Result<(), Failure> {
    let value = std::ptr::from_ref(value);
    #[expect(unsafe_code, reason = "calls of cuBLASLt")]
    // SAFETY: what is set is alive; the value is as long as said.
    let code = unsafe { set(of, attribute, value.cast(), size_of::<T>()) };
    check("set an attribute of a product", code)
}

fn number(value: i64) -> Result<c_int, Failure> {
    let large = |_| Failure::Plan("a product is larger than cuBLASLt takes".to_owned());
    c_int::try_from(value).map_err(large)
}
