//! NVIDIA's matrix products beside ours: libcublasLt, looked for at run time (cublasLt.h of CUDA 12 and 13).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

use super::super::{Cuda, CudaError};
use super::workload::Contents::{Bf16, Room};
use super::workload::Workload;
use super::{Measured, timed};

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}
const RTLD_NOW: c_int = 2;

/// The names that CUDA 12 and 13 give the library, and its development name.
const NAMES: [&CStr; 3] = [c"libcublasLt.so.13", c"libcublasLt.so.12", c"libcublasLt.so"];

const COMPUTE_32F: c_int = 68;
const R_32F: c_int = 0;
const R_16BF: c_int = 14;
const DESC_TRANSA: c_int = 3;
const DESC_TRANSB: c_int = 4;
const PREFERENCE_WORKSPACE: c_int = 1;
const WORKSPACE: usize = 32 << 20;

/// cublasLtMatmulHeuristicResult_t.
#[repr(C)]
#[derive(Clone, Copy)]
struct Heuristic {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

type Handle = *mut c_void;
type Status = c_int;
/// The product's description, and the layouts of its first and second operand and its result.
type Described = (Handle, Handle, Handle, Handle);

/// The functions that a product needs.
struct Library {
    handle: Handle,
    desc_create: CreateDesc,
    desc_set: SetAttribute,
    layout_create: CreateLayout,
    preference_create: CreatePreference,
    preference_set: SetAttribute,
    heuristic: HeuristicFunction,
    matmul: MatmulFunction,
}

type CreateDesc = unsafe extern "C" fn(*mut Handle, c_int, c_int) -> Status;
type SetAttribute = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Status;
type CreateLayout = unsafe extern "C" fn(*mut Handle, c_int, u64, u64, i64) -> Status;
type CreatePreference = unsafe extern "C" fn(*mut Handle) -> Status;
type HeuristicFunction = unsafe extern "C" fn(
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    c_int,
    *mut Heuristic,
    *mut c_int,
) -> Status;

type MatmulFunction = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_void,
    *const c_void,
    Handle,
    *const c_void,
    Handle,
    *const c_void,
    *const c_void,
    Handle,
    *mut c_void,
    Handle,
    *const c_void,
    *mut c_void,
    usize,
    *mut c_void,
) -> Status;

/// Times the library's nt, nn and tn products of bf16 at M, N, K; `None` where the loader finds no library.
///
/// # Errors
/// [`CudaError`] of the driver, the device or the library.
pub fn cublaslt(cuda: &Cuda, shape: [usize; 3]) -> Result<Option<Vec<Measured>>, CudaError> {
    let Some(library) = Library::open()? else { return Ok(None) };
    let library = Rc::new(library);
    let mut all = Vec::new();
    for layout in ["nt", "nn", "tn"] {
        let workload = library.clone().workload(layout, shape)?;
        let timed = Some(timed::time(cuda, &workload)?);
        let (shape, symbol) = (format!("M {}, N {}, K {}", shape[0], shape[1], shape[2]), workload.symbol);
        all.push(Measured { symbol, shape, bytes: workload.bytes, flops: workload.flops, timed, counted: None });
    }
    Ok(Some(all))
}

fn status(call: &'static str, status: Status) -> Result<(), CudaError> {
    match status {
        0 => Ok(()),
        error => Err(CudaError::Driver { call, kernel: String::new(), error: format!("cuBLAS status {error}") }),
    }
}

impl Library {
    fn open() -> Result<Option<Library>, CudaError> {
        // SAFETY: C strings; loading runs the library's initialisers alone.
        let library = NAMES.iter().map(|name| unsafe { dlopen(name.as_ptr(), RTLD_NOW) }).find(|l| !l.is_null());
        let Some(library) = library else { return Ok(None) };
        let missing = |name: &CStr| CudaError::Table(format!("libcublasLt.so has no {}", name.to_string_lossy()));
        let find = |name: &CStr| -> Result<*mut c_void, CudaError> {
            // SAFETY: the library is never closed.
            let symbol = unsafe { dlsym(library, name.as_ptr()) };
            if symbol.is_null() { Err(missing(name)) } else { Ok(symbol) }
        };
        let mut handle = null_mut();
        // SAFETY: the functions have the types that cublasLt.h gives them; the handle lives as long as the process.
        unsafe {
            let create: unsafe extern "C" fn(*mut Handle) -> Status = std::mem::transmute(find(c"cublasLtCreate")?);
            status("cublasLtCreate", create(&mut handle))?;
            Ok(Some(Library {
                handle,
                desc_create: std::mem::transmute::<*mut c_void, CreateDesc>(find(c"cublasLtMatmulDescCreate")?),
                desc_set: std::mem::transmute::<*mut c_void, SetAttribute>(find(c"cublasLtMatmulDescSetAttribute")?),
                layout_create: std::mem::transmute::<*mut c_void, CreateLayout>(find(c"cublasLtMatrixLayoutCreate")?),
                preference_create: std::mem::transmute::<*mut c_void, CreatePreference>(find(
                    c"cublasLtMatmulPreferenceCreate",
                )?),
                preference_set: std::mem::transmute::<*mut c_void, SetAttribute>(find(
                    c"cublasLtMatmulPreferenceSetAttribute",
                )?),
                heuristic: std::mem::transmute::<*mut c_void, HeuristicFunction>(find(
                    c"cublasLtMatmulAlgoGetHeuristic",
                )?),
                matmul: std::mem::transmute::<*mut c_void, MatmulFunction>(find(c"cublasLtMatmul")?),
            }))
        }
    }

    /// The library thinks in columns: our C [M, N] is its N × M, our B its first operand.
    fn workload(self: Rc<Library>, layout: &str, [m, n, k]: [usize; 3]) -> Result<Workload, CudaError> {
        let (transposed_a, transposed_b) = (layout == "tn", layout == "nt");
        let out = if transposed_a { 4 } else { 2 };
        let (desc, b, a, c) = self.describe([m, n, k], transposed_a, transposed_b)?;
        let best = self.best((desc, b, a, c))?;
        let bytes = 2 * (m * k + n * k) + out * m * n;
        let handles = [desc, b, a, c].map(|handle| handle as usize);
        let launch = move |cuda: &Cuda, _: &str, set: &super::workload::Set| {
            let [desc, b, a, c] = handles.map(|handle| handle as Handle);
            let (one, zero) = (1f32, 0f32);
            let (alpha, beta) = ((&raw const one).cast(), (&raw const zero).cast());
            let (first, second, result) = (set.at(1), set.at(0), set.at::<c_void>(2));
            let stream = cuda.memory.stream.cu_stream().cast();
            // SAFETY: the buffers have the layouts' sizes, the workspace the size that the heuristic was told.
            let done = unsafe {
                (self.matmul)(
                    self.handle,
                    desc,
                    alpha,
                    first,
                    b,
                    second,
                    a,
                    beta,
                    result,
                    c,
                    result,
                    c,
                    best.algorithm.as_ptr().cast(),
                    set.at(3),
                    WORKSPACE,
                    stream,
                )
            };
            status("cublasLtMatmul", done)
        };
        Ok(Workload {
            symbol: format!("cublaslt_{layout}_bf16"),
            bytes: bytes as u64,
            flops: 2 * (m * n * k) as u64,
            tensor_cores: true,
            buffers: vec![Bf16(m * k), Bf16(n * k), Room(out * m * n), Room(WORKSPACE)],
            launch: Box::new(launch),
        })
    }

    fn describe(&self, [m, n, k]: [usize; 3], transposed_a: bool, transposed_b: bool) -> Result<Described, CudaError> {
        let layout = |dtype: c_int, rows: usize, columns: usize| {
            let mut handle = null_mut();
            // SAFETY: the library writes one handle.
            let done = unsafe { (self.layout_create)(&mut handle, dtype, rows as u64, columns as u64, rows as i64) };
            status("cublasLtMatrixLayoutCreate", done).map(|()| handle)
        };
        let mut desc = null_mut();
        // SAFETY: the library writes one handle, and reads one number per attribute.
        unsafe {
            status("cublasLtMatmulDescCreate", (self.desc_create)(&mut desc, COMPUTE_32F, R_32F))?;
            for (attribute, transposed) in [(DESC_TRANSA, transposed_b), (DESC_TRANSB, transposed_a)] {
                let operation = c_int::from(transposed);
                let done = (self.desc_set)(desc, attribute, (&raw const operation).cast(), size_of::<c_int>());
                status("cublasLtMatmulDescSetAttribute", done)?;
            }
        }
        let b = if transposed_b { layout(R_16BF, k, n)? } else { layout(R_16BF, n, k)? };
        let a = if transposed_a { layout(R_16BF, m, k)? } else { layout(R_16BF, k, m)? };
        let c = layout(if transposed_a { R_32F } else { R_16BF }, n, m)?;
        Ok((desc, b, a, c))
    }

    /// The algorithm that the library thinks fastest.
    fn best(&self, (desc, b, a, c): Described) -> Result<Heuristic, CudaError> {
        let mut preference = null_mut();
        let mut found = 0;
        let empty = Heuristic { algorithm: [0; 8], workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let (mut best, most) = (empty, WORKSPACE);
        // SAFETY: handles of this library; it writes at most one result.
        unsafe {
            status("cublasLtMatmulPreferenceCreate", (self.preference_create)(&mut preference))?;
            let set =
                (self.preference_set)(preference, PREFERENCE_WORKSPACE, (&raw const most).cast(), size_of::<usize>());
            status("cublasLtMatmulPreferenceSetAttribute", set)?;
            let done = (self.heuristic)(self.handle, desc, b, a, c, c, preference, 1, &mut best, &mut found);
            status("cublasLtMatmulAlgoGetHeuristic", done)?;
        }
        if found == 0 {
            Err(CudaError::Table("libcublasLt.so has no algorithm for the product".into()))
        } else {
            Ok(best)
        }
    }
}
