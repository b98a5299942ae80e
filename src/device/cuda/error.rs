use cudarc::driver::DriverError;

/// What can go wrong between this program and a GPU.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    #[error(
        "no CUDA driver: --device cuda needs libcuda.so, which this machine lacks; install NVIDIA's driver, or use --device cpu"
    )]
    NoDriver,

    #[error("--device cuda: the CUDA driver found no device; use --device cpu")]
    NoDevice,

    #[error("--device cuda:{ordinal}: found {found} CUDA devices, expected an ordinal below that")]
    NoSuchDevice { ordinal: usize, found: usize },

    #[error("{device}: out of memory: asked for {asked} bytes, found {free} free of {total}")]
    OutOfMemory { device: String, asked: usize, free: usize, total: usize },

    #[error("{symbol}: no code for {device}, compute capability {}.{}", capability.0, capability.1)]
    NoKernel { symbol: String, device: String, capability: (u32, u32) },

    /// The driver is older than the device code's PTX version.
    #[error("{module}: the driver refuses PTX {version}; expected {driver}")]
    OldDriver { module: String, version: String, driver: &'static str },

    #[error("{module}: the driver cannot load it: {error}\n{log}")]
    Module { module: String, error: String, log: String },

    /// Arguments outside what a kernel can do.
    #[error("{symbol}: found {found}, expected {limit}")]
    Limit { symbol: String, found: String, limit: String },

    /// A call of the driver's failed. After a kernel's fault every later call of the process fails.
    #[error("{call} failed{}: {error}", if kernel.is_empty() { String::new() } else { format!(" for {kernel}") })]
    Driver {
        call: &'static str,
        /// The kernel concerned, or where copies and waits report earlier faults, the last one launched.
        kernel: String,
        /// The driver's name of the error, and its sentence.
        error: String,
    },

    /// A fault while a kernel was checked.
    #[error("{case}: {source}")]
    InCase { case: String, source: Box<CudaError> },

    /// What a check of one kernel found.
    #[error("{0}")]
    Wrong(String),

    /// The tables inside this program contradict each other.
    #[error("the table of kernels: {0}")]
    Table(String),
}

impl CudaError {
    /// Whether the user asked for what this machine does not have.
    pub fn is_usage(&self) -> bool {
        matches!(self, CudaError::NoDriver | CudaError::NoDevice | CudaError::NoSuchDevice { .. })
    }
}

/// An error of the driver's as `NAME (what it means)`.
pub(super) fn describe(error: DriverError) -> String {
    let text = |t: Result<&std::ffi::CStr, DriverError>| t.map(|t| t.to_string_lossy().into_owned());
    match (text(error.error_name()), text(error.error_string())) {
        (Ok(name), Ok(meaning)) => format!("{name} ({meaning})"),
        _ => format!("error {}", error.0 as u32),
    }
}
