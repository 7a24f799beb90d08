//! Modules and kernels of a plan on the device.

use std::collections::BTreeMap;
use std::ffi::{CString, c_int};
use std::path::Path;
use std::time::Instant;

use warpwright_plan::image::Image;
use warpwright_plan::{Kernel, LaunchPlan, TensorMap};

use crate::artifact;
use crate::driver::{Address, Driver, EncodedMap, Handle};
use crate::failure::{Failure, printable};
use crate::staged::Device;
use crate::variables::{self, Variable};
use crate::wire::KernelFacts;

/// `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES`.
const STATIC_SHARED: c_int = 1;
/// `CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES`.
const LOCAL: c_int = 3;
/// `CU_FUNC_ATTRIBUTE_NUM_REGS`.
const REGISTERS: c_int = 4;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: c_int = 8;
/// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`.
const SHARED_CARVEOUT: c_int = 9;
/// `CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED`.
const NONPORTABLE_CLUSTER: c_int = 14;

/// A plan that was checked, and the images of its modules.
pub(crate) struct Checked {
    pub(crate) plan: LaunchPlan,
    /// As the files have them.
    images: Vec<Vec<u8>>,
    /// Functions of the device runtime that they call.
    pub(crate) needs: Vec<String>,
    /// Where the time went.
    pub(crate) seconds: BTreeMap<String, f64>,
    /// Variables of the modules that `prepare` may write: none where it has no nodes.
    pub(crate) variables: Vec<Variable>,
}

impl Checked {
    /// Reads the images, and checks the plan against them.
    pub(crate) fn read(plan: LaunchPlan, artifact: &Path) -> Result<Self, Failure> {
        let mut seconds = BTreeMap::new();
        let begun = Instant::now();
        let images = artifact::images(artifact, &plan.modules)?;
        seconds.insert("read".to_owned(), begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let parsed: Result<Vec<Image>, _> = images.iter().map(|image| Image::read(image)).collect();
        let parsed = parsed.map_err(|error| Failure::Plan(error.to_string()))?;
        plan.check(&parsed).map_err(|error| Failure::Plan(error.to_string()))?;
        seconds.insert("check".to_owned(), begun.elapsed().as_secs_f64());
        let mut needs: Vec<String> =
            parsed.iter().flat_map(|image| &image.needs).map(|name| printable(name)).collect();
        needs.sort_unstable();
        needs.dedup();
        let symbols = parsed.iter().map(|image| &image.symbols);
        let prepares = !plan.prepare.is_empty();
        let variables = if prepares { variables::of(symbols)? } else { Vec::new() };
        Ok(Self { plan, images, needs, seconds, variables })
    }
}

/// Loaded modules, with the kernels of a plan.
pub(crate) struct Modules {
    driver: &'static Driver,
    handles: Vec<Handle>,
    functions: Vec<Handle>,
}

impl Modules {
    /// Loads the modules of a plan.
    pub(crate) fn load(driver: &'static Driver, checked: &Checked) -> Result<Self, Failure> {
        let mut modules = Self { driver, handles: Vec::new(), functions: Vec::new() };
        modules.reload(checked)?;
        Ok(modules)
    }

    /// Loads them anew: the device's variables then have their first values.
    pub(crate) fn reload(&mut self, checked: &Checked) -> Result<(), Failure> {
        self.unload()?;
        let d = self.driver;
        for image in &checked.images {
            let mut handle = std::ptr::null_mut();
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: `Checked::read` has read the image to its end, as its own headers give it, so the
            // driver finds none that leads beyond it; `handle` outlives the call.
            let code = unsafe { (d.module_load)(&raw mut handle, image.as_ptr().cast()) };
            d.check("load a module", code)?;
            self.handles.push(handle);
        }
        for kernel in &checked.plan.kernels {
            let function = self.resolve(kernel)?;
            self.functions.push(function);
        }
        Ok(())
    }

    /// Unloads all. Nothing of them may be running.
    pub(crate) fn unload(&mut self) -> Result<(), Failure> {
        self.functions.clear();
        let mut result = Ok(());
        for handle in self.handles.drain(..) {
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: loaded in `reload`, and unloaded once.
            let code = unsafe { (self.driver.module_unload)(handle) };
            result = result.and(self.driver.check("unload a module", code));
        }
        result
    }

    fn resolve(&self, kernel: &Kernel) -> Result<Handle, Failure> {
        let d = self.driver;
        let label = printable(&kernel.name);
        let module = self.module(kernel.module)?;
        let name = text(&kernel.name)?;
        let mut function = std::ptr::null_mut();
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the module is loaded; the name ends in a zero byte; `function` outlives the call.
        let code = unsafe { (d.module_function)(&raw mut function, module, name.as_ptr()) };
        d.check(&format!("find kernel {label}"), code)?;
        self.check_parameters(function, kernel)?;
        let shared = kernel.max_dynamic_shared.map(c_int::try_from).transpose();
        let shared = shared.map_err(|_| {
            Failure::Plan(format!("kernel {label} wants more shared memory than there is"))
        })?;
        let attributes = [
            (MAX_DYNAMIC_SHARED, shared),
            (SHARED_CARVEOUT, kernel.shared_carveout),
            (NONPORTABLE_CLUSTER, kernel.nonportable_cluster.then_some(1)),
        ];
        for (attribute, value) in attributes {
            let Some(value) = value else { continue };
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: the function is of a loaded module.
            let code = unsafe { (d.function_set)(function, attribute, value) };
            d.check(&format!("set attribute {attribute} of kernel {label} to {value}"), code)?;
        }
        if let Some(load) = d.function_load {
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: the function is of a loaded module.
            let code = unsafe { load(function) };
            d.check(&format!("load kernel {label}"), code)?;
        }
        Ok(function)
    }

    /// Compares the plan's parameters with those that the driver found, where it says them.
    fn check_parameters(&self, function: Handle, kernel: &Kernel) -> Result<(), Failure> {
        let Some(param_info) = self.driver.param_info else { return Ok(()) };
        let size = |index: usize| {
            let (mut offset, mut size) = (0, 0);
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: the function is of a loaded module; both numbers outlive the call.
            let code = unsafe { param_info(function, index, &raw mut offset, &raw mut size) };
            (code == 0).then_some(size)
        };
        let planned = kernel.params.iter().map(|bytes| Some(*bytes as usize));
        // One more than the plan has: the driver must know none.
        let agree = planned.chain([None]).enumerate().all(|(index, bytes)| size(index) == bytes);
        if agree {
            return Ok(());
        }
        let name = printable(&kernel.name);
        Err(Failure::Plan(format!("kernel {name} has other parameters than the plan says")))
    }

    fn module(&self, index: u32) -> Result<Handle, Failure> {
        let module = self.handles.get(index as usize).copied();
        module.ok_or_else(|| Failure::Plan(format!("there is no module {index}")))
    }

    /// What the driver says of the kernels.
    pub(crate) fn facts(&self, plan: &LaunchPlan) -> Result<Vec<KernelFacts>, Failure> {
        let d = self.driver;
        let kernels = plan.kernels.iter().zip(&self.functions);
        kernels
            .map(|(kernel, function)| {
                let attribute = |which: c_int| {
                    let mut value = 0;
                    #[expect(unsafe_code, reason = "CUDA driver calls")]
                    // SAFETY: the function is of a loaded module; `value` outlives the call.
                    let code = unsafe { (d.function_attribute)(&raw mut value, which, *function) };
                    d.check("read an attribute of a kernel", code).map(|()| value)
                };
                Ok(KernelFacts {
                    name: kernel.name.clone(),
                    registers: attribute(REGISTERS)?,
                    static_shared: attribute(STATIC_SHARED)?,
                    local: attribute(LOCAL)?,
                })
            })
            .collect()
    }

    /// Most blocks of a kernel that one multiprocessor holds.
    pub(crate) fn occupancy(&self, kernel: u32, threads: u32, shared: u32) -> Result<i32, Failure> {
        let d = self.driver;
        let function = self.function(kernel)?;
        let threads = c_int::try_from(threads)
            .map_err(|_| Failure::Request(format!("a block has no {threads} threads")))?;
        let mut blocks = 0;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the function is of a loaded module; `blocks` outlives the call.
        let code = unsafe { (d.occupancy)(&raw mut blocks, function, threads, shared as usize) };
        d.check("compute the occupancy", code).map(|()| blocks)
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        let _ = self.unload();
    }
}

impl Device for Modules {
    fn function(&self, kernel: u32) -> Result<Handle, Failure> {
        let function = self.functions.get(kernel as usize).copied();
        function.ok_or_else(|| Failure::Request(format!("there is no kernel {kernel}")))
    }

    fn symbol(&self, module: u32, name: &str) -> Result<(Address, u64), Failure> {
        let d = self.driver;
        let module = self.module(module)?;
        let (mut at, mut bytes) = (0, 0);
        let symbol = text(name)?;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the module is loaded; the name ends in a zero byte; both numbers outlive the call.
        let code =
            unsafe { (d.module_global)(&raw mut at, &raw mut bytes, module, symbol.as_ptr()) };
        d.check(&format!("find variable {}", printable(name)), code)?;
        Ok((at, bytes as u64))
    }

    fn encode(&self, map: &TensorMap, at: Address) -> Result<EncodedMap, Failure> {
        let d = self.driver;
        let rank = map.dims.len();
        let fits = (1..=5).contains(&rank)
            && map.strides.len() + 1 == rank
            && map.box_dims.len() == rank
            && map.element_strides.len() == rank;
        if !fits {
            return Err(Failure::Plan(format!("a tensor map of {rank} dimensions is malformed")));
        }
        let mut encoded = EncodedMap([0; 128]);
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the four arrays have as many elements as the driver reads for this rank; the map is
        // aligned and as long as the driver's.
        let code = unsafe {
            (d.encode_tiled)(
                &raw mut encoded,
                map.dtype,
                rank as u32,
                std::ptr::without_provenance_mut(at as usize),
                map.dims.as_ptr(),
                map.strides.as_ptr(),
                map.box_dims.as_ptr(),
                map.element_strides.as_ptr(),
                map.interleave,
                map.swizzle,
                map.l2_promotion,
                map.oob_fill,
            )
        };
        d.check("encode a tensor map", code).map(|()| encoded)
    }
}

/// A name for the driver.
fn text(name: &str) -> Result<CString, Failure> {
    CString::new(name).map_err(|_| Failure::Plan("a name contains a zero byte".to_owned()))
}
