//! Convolutions of a plan, made ready: descriptors, and the algorithms that may compute them.

use std::cell::Cell;
use std::ffi::c_int;

use warpwright_plan::{Convolution, DnnFilter, DnnTensor, GemmScalar};

use super::functions::{Functions, Performance};
use crate::driver::Handle;
use crate::failure::Failure;

/// A convolution without its addresses.
pub(crate) type Shape = Convolution<()>;

/// Most bytes of an algorithm's workspace, of all streams together.
pub(super) const WORKSPACE_BYTES: usize = 1 << 30;
/// Most algorithms that cuDNN is asked for; it has fewer.
const MOST_ALGORITHMS: usize = 16;
/// `CUDNN_DETERMINISTIC`.
const DETERMINISTIC: c_int = 1;
/// `CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION`: rounds to half precision.
const CONVERTS: c_int = 2;
/// `CUDNN_FMA_MATH`: full precision.
const FULL: c_int = 3;
/// `CUDNN_DATA_FLOAT`.
const FLOAT: u32 = 0;
/// `CUDNN_DATA_DOUBLE`.
const DOUBLE: u32 = 1;
/// `CUDNN_ACTIVATION_IDENTITY`.
const IDENTITY: u32 = 5;
/// `CUDNN_PROPAGATE_NAN`.
const PROPAGATE_NAN: c_int = 1;

/// An algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) algorithm: c_int,
    pub(super) math: c_int,
    /// Bytes of its workspace.
    pub(super) memory: usize,
}

/// Descriptors of a convolution.
#[derive(Clone, Copy)]
pub(super) struct Descriptors {
    pub(super) source: Handle,
    pub(super) filter: Handle,
    pub(super) result: Handle,
    pub(super) convolution: Handle,
    /// Of the bias and of the activation.
    pub(super) epilogue: Option<(Handle, Handle)>,
}

/// Numbers that cuDNN reads through a pointer: of a float or of a double.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors {
    pub(super) alpha: u64,
    pub(super) beta: u64,
    pub(super) one: u64,
    pub(super) zero: u64,
}

/// A convolution that is ready.
pub(super) struct Made {
    pub(super) descriptors: Descriptors,
    pub(super) transposed: bool,
    pub(super) residual: bool,
    /// Whether its activation is more than the identity.
    pub(super) rectifies: bool,
    pub(super) factors: Factors,
    /// The best first.
    pub(super) choices: Vec<Choice>,
    /// The first of them that cuDNN did not refuse so far, and whether it refused all with the epilogue.
    pub(super) chosen: Cell<usize>,
    pub(super) apart: Cell<bool>,
}

/// Descriptors to be destroyed, each with its function.
#[derive(Default)]
pub(super) struct Owned(Vec<(unsafe extern "C" fn(Handle) -> c_int, Handle)>);

impl Owned {
    /// Destroys all.
    pub(super) fn end(&mut self) {
        for (end, descriptor) in self.0.drain(..) {
            #[expect(unsafe_code, reason = "calls of cuDNN")]
            // SAFETY: it was made by the library that the function is of, and nothing uses it any more.
            unsafe {
                end(descriptor);
            }
        }
    }
}

/// Makes descriptors.
pub(super) struct Maker<'a> {
    pub(super) functions: &'a Functions,
    pub(super) handle: Handle,
    pub(super) owned: &'a mut Owned,
}

impl Maker<'_> {
    pub(super) fn make(&mut self, shape: &Shape) -> Result<Made, Failure> {
        let descriptors = Descriptors {
            source: self.tensor(&shape.source)?,
            filter: self.filter(&shape.filter)?,
            result: self.tensor(&shape.result)?,
            convolution: self.convolution(shape)?,
            epilogue: match &shape.epilogue {
                Some(epilogue) => {
                    Some((self.tensor(&epilogue.bias)?, self.activation(epilogue.activation)?))
                }
                None => None,
            },
        };
        let choices = self.choices(shape, descriptors)?;
        let double = shape.source.dtype == DOUBLE;
        let one = if double { 1f64.to_bits() } else { u64::from(1f32.to_bits()) };
        let factors = Factors { alpha: bits(shape.alpha), beta: bits(shape.beta), one, zero: 0 };
        let epilogue = shape.epilogue.as_ref();
        let residual = epilogue.is_some_and(|epilogue| epilogue.residual.is_some());
        let rectifies = epilogue.is_some_and(|epilogue| epilogue.activation != IDENTITY);
        Ok(Made {
            descriptors,
            transposed: shape.transposed,
            residual,
            rectifies,
            factors,
            choices,
            chosen: Cell::new(0),
            apart: Cell::new(false),
        })
    }

    fn own(
        &mut self,
        create: unsafe extern "C" fn(*mut Handle) -> c_int,
        end: unsafe extern "C" fn(Handle) -> c_int,
    ) -> Result<Handle, Failure> {
        let mut made = std::ptr::null_mut();
        #[expect(unsafe_code, reason = "calls of cuDNN")]
        // SAFETY: `made` outlives the call.
        check("make a descriptor", unsafe { create(&raw mut made) })?;
        self.owned.0.push((end, made));
        Ok(made)
    }

    fn tensor(&mut self, tensor: &DnnTensor<()>) -> Result<Handle, Failure> {
        let f = self.functions;
        let made = self.own(f.create_tensor, f.end_tensor)?;
        let (dims, strides) = (numbers(&tensor.dims)?, numbers(&tensor.strides)?);
        if dims.len() != strides.len() {
            return Err(unfit());
        }
        #[expect(unsafe_code, reason = "calls of cuDNN")]
        // SAFETY: both lists are as long as said.
        let code = unsafe {
            let (dims, strides, count) = (dims.as_ptr(), strides.as_ptr(), count(&dims)?);
            (f.set_tensor)(made, number(tensor.dtype)?, count, dims, strides)
        };
        check("describe a tensor", code).map(|()| made)
    }

    fn filter(&mut self, filter: &DnnFilter<()>) -> Result<Handle, Failure> {
        let f = self.functions;
        let made = self.own(f.create_filter, f.end_filter)?;
        let dims = numbers(&filter.dims)?;
        let (dtype, format) = (number(filter.dtype)?, number(filter.format)?);
        #[expect(unsafe_code, reason = "calls of cuDNN")]
        // SAFETY: the list is as long as said.
        let code = unsafe { (f.set_filter)(made, dtype, format, count(&dims)?, dims.as_ptr()) };
        check("describe a filter", code).map(|()| made)
    }

    fn convolution(&mut self, shape: &Shape) -> Result<Handle, Failure> {
        let f = self.functions;
        let made = self.own(f.create_convolution, f.end_convolution)?;
        let lists = [&shape.padding, &shape.steps, &shape.dilation];
        let [padding, steps, dilation] = lists.map(|list| numbers(list));
        let (padding, steps, dilation) = (padding?, steps?, dilation?);
        if steps.len() != padding.len() || dilation.len() != padding.len() {
            return Err(unfit());
        }
        let (mode, compute) = (number(shape.mode)?, number(shape.compute)?);
        let (groups, math) = (number(shape.groups)?, number(shape.math)?);
        #[expect(unsafe_code, reason = "calls of cuDNN")]
        // SAFETY: the three lists are as long as said.
        unsafe {
            let set = (f.set_convolution)(
                made,
                count(&padding)?,
                padding.as_ptr(),
                steps.as_ptr(),
                dilation.as_ptr(),
                mode,
                compute,
            );
            check("describe a convolution", set)?;
            check("set the groups of a convolution", (f.set_groups)(made, groups))?;
            check("set the math mode of a convolution", (f.set_math)(made, math))?;
        }
        Ok(made)
    }

    fn activation(&mut self, mode: u32) -> Result<Handle, Failure> {
        let f = self.functions;
        let made = self.own(f.create_activation, f.end_activation)?;
        #[expect(unsafe_code, reason = "calls of cuDNN")]
        // SAFETY: the descriptor is alive.
        let code = unsafe { (f.set_activation)(made, number(mode)?, PROPAGATE_NAN, 0.0) };
        check("describe an activation", code).map(|()| made)
    }

    /// The recorded algorithm, if cuDNN takes it, then those that cuDNN expects to be fast.
    fn choices(&self, shape: &Shape, of: Descriptors) -> Result<Vec<Choice>, Failure> {
        let f = self.functions;
        let mut choices = Vec::new();
        let (first, second) =
            if shape.transposed { (of.filter, of.source) } else { (of.source, of.filter) };
        let (math, handle) = (number(shape.math)?, self.handle);
        if let Some(algorithm) = shape.algorithm {
            let algorithm = number(algorithm)?;
            let mut memory = 0;
            let ask = if shape.transposed { f.transposed_workspace } else { f.workspace };
            #[expect(unsafe_code, reason = "calls of cuDNN")]
            // SAFETY: all descriptors are alive, and `memory` outlives the call.
            let code = unsafe {
                ask(handle, first, second, of.convolution, of.result, algorithm, &raw mut memory)
            };
            if code == 0 {
                choices.push(Choice { algorithm, math, memory });
            }
        }
        let mut found = [Performance::default(); MOST_ALGORITHMS];
        let mut returned: c_int = 0;
        let ask = if shape.transposed { f.transposed_algorithms } else { f.algorithms };
        #[expect(unsafe_code, reason = "calls of cuDNN")]
        // SAFETY: as above; the list has room for as many results as asked for.
        let code = unsafe {
            let (most, list) = (MOST_ALGORITHMS as c_int, found.as_mut_ptr());
            ask(handle, first, second, of.convolution, of.result, most, &raw mut returned, list)
        };
        if choices.is_empty() {
            check("choose the algorithm of a convolution", code)?;
        }
        let returned = if code == 0 { usize::try_from(returned).unwrap_or(0) } else { 0 };
        choices.extend(found.iter().take(returned).filter_map(|found| choice(shape, math, found)));
        choices.retain(|choice| choice.memory <= WORKSPACE_BYTES);
        Ok(choices)
    }
}

/// What cuDNN proposes, if it is deterministic and keeps the precision.
fn choice(shape: &Shape, math: c_int, found: &Performance) -> Option<Choice> {
    let rounds = found.math == CONVERTS && math != CONVERTS && shape.source.dtype == FLOAT;
    let usable = found.status == 0 && found.determinism == DETERMINISTIC && !rounds;
    let math = if math == FULL { math } else { found.math };
    usable.then_some(Choice { algorithm: found.algorithm, math, memory: found.memory })
}

fn bits(scalar: GemmScalar) -> u64 {
    match scalar {
        GemmScalar::F32(bits) => u64::from(bits),
        GemmScalar::F64(bits) => bits,
        GemmScalar::I32(_) | GemmScalar::F16(_) => 0,
    }
}

fn unfit() -> Failure {
    Failure::Plan("a convolution does not fit cuDNN's functions".to_owned())
}

fn number(value: u32) -> Result<c_int, Failure> {
    c_int::try_from(value).map_err(|_| unfit())
}

fn numbers(values: &[u32]) -> Result<Vec<c_int>, Failure> {
    values.iter().map(|value| number(*value)).collect()
}

fn count(values: &[c_int]) -> Result<c_int, Failure> {
    c_int::try_from(values.len()).map_err(|_| unfit())
}

/// What cuDNN does not take is no plan for this replayer; anything else went wrong.
pub(super) fn check(action: &str, code: c_int) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code if is_refusal(code) => {
            Err(Failure::Plan(format!("cuDNN refuses to {action}: status {code}")))
        }
        code => Err(Failure::Cudnn { action: action.to_owned(), code }),
    }
}

/// `CUDNN_STATUS_BAD_PARAM` and `CUDNN_STATUS_NOT_SUPPORTED`, of cuDNN 8 and of 9.
pub(super) fn is_refusal(code: c_int) -> bool {
    matches!(code, 3 | 9 | 2000..4000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dtype: u32) -> Shape {
        let tensor = || DnnTensor { at: (), dtype, dims: vec![1; 4], strides: vec![1; 4] };
        Convolution {
            transposed: false,
            source: tensor(),
            filter: DnnFilter { at: (), dtype, format: 0, dims: vec![1; 4] },
            result: tensor(),
            padding: vec![0; 2],
            steps: vec![1; 2],
            dilation: vec![1; 2],
            groups: 1,
            mode: 1,
            compute: 0,
            math: 0,
            alpha: GemmScalar::F32(0),
            beta: GemmScalar::F32(0),
            algorithm: None,
            epilogue: None,
        }
    }

    #[test]
    fn only_deterministic_algorithms_of_the_precision_are_chosen() {
        let found =
            Performance { algorithm: 6, memory: 8, determinism: 1, ..Performance::default() };
        let chosen = |dtype, math, found| choice(&shape(dtype), math, &found).map(|c| c.math);
        assert_eq!(chosen(0, 0, Performance { math: 1, ..found }), Some(1));
        assert_eq!(chosen(0, FULL, Performance { math: 1, ..found }), Some(FULL));
        assert_eq!(chosen(0, 0, Performance { math: CONVERTS, ..found }), None);
        assert_eq!(chosen(0, FULL, Performance { math: CONVERTS, ..found }), None);
        assert_eq!(chosen(2, 1, Performance { math: CONVERTS, ..found }), Some(CONVERTS));
        assert_eq!(chosen(0, 0, Performance { determinism: 0, ..found }), None);
        assert_eq!(chosen(0, 0, Performance { status: 3000, ..found }), None);
    }

    #[test]
    fn refusals_of_cudnn_are_told_from_errors() {
        assert_eq!(check("run", 0), Ok(()));
        for code in [3, 9, 2000, 3000, 3014] {
            assert_eq!(check("run", code).unwrap_err().kind(), "plan", "{code}");
        }
        for code in [1, 8, 1001, 4000, 5001] {
            assert_eq!(check("run", code).unwrap_err().kind(), "cudnn", "{code}");
        }
    }
}
