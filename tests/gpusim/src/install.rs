//! Puts gpusim in the place of the CUDA driver for this process.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The file cargo makes of this crate's cdylib.
const LIBRARY: &str = "libgpusim.so";

const RTLD_NOW: c_int = 2;
const RTLD_GLOBAL: c_int = 0x100;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

/// The loaded driver, as tests see it: what it found and counted. It is the driver's own copy of gpusim that is asked, not the
/// one linked into the test.
#[derive(Clone, Copy)]
pub struct Installed {
    library: usize,
}

/// Loads gpusim's shared library, so that whoever asks the loader for `libcuda.so` from now on gets it. Call it before the first CUDA
/// call of the process. Further calls give the same library.
///
/// The library is looked for at `GPUSIM_LIBRARY`, then in the folder of the running executable (`target/release/deps` for tests), then
/// in those above it.
///
/// # Errors
/// What was tried, in words, if the library cannot be found or loaded.
pub fn install() -> Result<Installed, String> {
    static INSTALLED: OnceLock<Result<Installed, String>> = OnceLock::new();
    INSTALLED.get_or_init(load).clone()
}

fn load() -> Result<Installed, String> {
    let path = find()?;
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| format!("a NUL in {}", path.display()))?;
    // SAFETY: a C string; loading runs no code of the library's but the runtime's initialisers.
    let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW | RTLD_GLOBAL) };
    if library.is_null() {
        // SAFETY: after a failure dlerror gives a C string.
        let reason = unsafe { std::ffi::CStr::from_ptr(dlerror()) }.to_string_lossy();
        return Err(format!("cannot load {}: {reason}", path.display()));
    }
    Ok(Installed { library: library as usize })
}

fn find() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("GPUSIM_LIBRARY") {
        return Ok(path.into());
    }
    let executable = std::env::current_exe().map_err(|error| format!("the running executable: {error}"))?;
    let mut tried = Vec::new();
    for folder in executable.ancestors().skip(1).take(3) {
        for path in [folder.join(LIBRARY), folder.join("deps").join(LIBRARY)] {
            if path.is_file() {
                return Ok(path);
            }
            tried.push(path.display().to_string());
        }
    }
    Err(format!("{LIBRARY} is not built: looked for {}", tried.join(", ")))
}

impl Installed {
    fn symbol(&self, name: &std::ffi::CStr) -> *mut c_void {
        // SAFETY: the library is never unloaded.
        let symbol = unsafe { dlsym(self.library as *mut c_void, name.as_ptr()) };
        assert!(!symbol.is_null(), "the loaded gpusim has no {name:?}: it was built from other sources");
        symbol
    }

    fn text(&self, name: &std::ffi::CStr) -> String {
        unsafe extern "C" fn receive(bytes: *const u8, len: usize, out: *mut c_void) {
            // SAFETY: the library gives `len` bytes; `out` is the string below.
            unsafe {
                let bytes = std::slice::from_raw_parts(bytes, len);
                *out.cast::<String>() = String::from_utf8_lossy(bytes).into_owned();
            }
        }
        type Function = unsafe extern "C" fn(unsafe extern "C" fn(*const u8, usize, *mut c_void), *mut c_void);
        let mut text = String::new();
        // SAFETY: the functions asked for here have this type (driver/control.rs).
        unsafe {
            let function: Function = std::mem::transmute(self.symbol(name));
            function(receive, (&raw mut text).cast());
        }
        text
    }

    /// Everything found since the last reset, as a JSON list; `[]` if all is well.
    pub fn findings_json(&self) -> String {
        self.text(c"gpusim_findings_json")
    }

    /// The same as sentences, for a person to read; empty if all is well.
    pub fn findings_text(&self) -> String {
        self.text(c"gpusim_findings_text")
    }

    /// Counts per kernel since the last reset, as JSON.
    pub fn counters_json(&self) -> String {
        self.text(c"gpusim_counters_json")
    }

    /// Which instructions ran and which did not since the last reset, per kernel, as JSON.
    pub fn coverage_json(&self) -> String {
        self.text(c"gpusim_coverage_json")
    }

    /// The last mutation made, in words.
    pub fn mutation(&self) -> String {
        self.text(c"gpusim_mutation")
    }

    /// Alters one instruction of `kernel`, chosen by `seed`, in the next module that has it.
    pub fn mutate_next(&self, kernel: &str, seed: u64) {
        let name = CString::new(kernel).unwrap_or_default();
        // SAFETY: the function has this type.
        unsafe {
            let function: unsafe extern "C" fn(*const c_char, u64) -> u32 =
                std::mem::transmute(self.symbol(c"gpusim_mutate_next"));
            function(name.as_ptr(), seed);
        }
    }

    /// Loads `text` in place of the next module that has `kernel`: a fault to plant.
    pub fn replace_next(&self, kernel: &str, text: &str) {
        let [kernel, text] = [kernel, text].map(|text| CString::new(text).unwrap_or_default());
        // SAFETY: the function has this type.
        unsafe {
            let function: unsafe extern "C" fn(*const c_char, *const c_char) -> u32 =
                std::mem::transmute(self.symbol(c"gpusim_replace_next"));
            function(kernel.as_ptr(), text.as_ptr());
        }
    }

    /// Forgets findings, counts and the error of a faulted kernel.
    pub fn reset(&self) {
        // SAFETY: the function has this type.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(self.symbol(c"gpusim_reset"))() }
    }

    /// Notes every allocation, module, stream and event that exists now as a leak.
    pub fn check_leaks(&self) {
        // SAFETY: the function has this type.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(self.symbol(c"gpusim_check_leaks"))() }
    }

    /// Sets how many threads run blocks; 0: one per core.
    pub fn set_workers(&self, workers: usize) {
        // SAFETY: the function has this type.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(usize)>(self.symbol(c"gpusim_set_workers"))(workers) }
    }

    /// Lets launches run their last blocks alone, so many; 0: all. What the others would have written is not there.
    pub fn set_last_blocks(&self, count: u64) {
        // SAFETY: the function has this type.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(u64)>(self.symbol(c"gpusim_set_last_blocks"))(count) }
    }

    /// Sets whether launches run their blocks from the last to the first: what differs then depended on their order.
    pub fn set_backwards(&self, backwards: bool) {
        // SAFETY: the function has this type.
        unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn(bool)>(self.symbol(c"gpusim_set_backwards"))(backwards)
        }
    }

    /// Sets how many warp instructions a block may run before its launch fails.
    pub fn set_watchdog(&self, instructions: u64) {
        // SAFETY: the function has this type.
        unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn(u64)>(self.symbol(c"gpusim_set_watchdog"))(instructions)
        }
    }
}
