//! What a launch of an empty kernel costs the host through cudarc, the program's driver layer, and with the feature `cust` through
//! that crate: the choice between them is one of convenience as long as they cost the same.
//!
//! cargo run --release -p launch [--features cust] [-- --real]
//!
//! On gpusim, unless `--real` asks for the machine's own driver. There the time is mostly that of the interpreter, which is the same
//! for both.

use std::error::Error;
use std::time::Instant;

/// Launches between two waits.
const LAUNCHES: usize = 2000;
/// Of each layer, one after the other in turn.
const ROUNDS: usize = 15;

const NAME: &str = "empty";
const PTX: &str = "\
.version 7.0
.target sm_80
.address_size 64
.visible .entry empty(.param .u64 value)
{
    ret;
}
\0";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A layer that can launch the kernel.
trait Layer {
    fn name(&self) -> &'static str;

    /// Launches it so often, and waits.
    fn launch(&self, times: usize) -> Result<()>;
}

struct Cudarc {
    context: std::sync::Arc<cudarc::driver::CudaContext>,
    stream: std::sync::Arc<cudarc::driver::CudaStream>,
    function: cudarc::driver::sys::CUfunction,
}

impl Cudarc {
    fn new() -> Result<Cudarc> {
        let context = cudarc::driver::CudaContext::new(0)?;
        let stream = context.new_stream()?;
        // SAFETY: text that ends in NUL.
        let module = unsafe { cudarc::driver::result::module::load_data(PTX.as_ptr().cast()) }?;
        // SAFETY: the module stays loaded.
        let function = unsafe { cudarc::driver::result::module::get_function(module, std::ffi::CString::new(NAME)?) }?;
        Ok(Cudarc { context, stream, function })
    }
}

impl Layer for Cudarc {
    fn name(&self) -> &'static str {
        "cudarc"
    }

    fn launch(&self, times: usize) -> Result<()> {
        self.context.bind_to_thread()?;
        let mut value = 7u64;
        for _ in 0..times {
            let args = &mut [(&raw mut value).cast()];
            // SAFETY: the kernel takes one number.
            unsafe {
                let stream = self.stream.cu_stream();
                cudarc::driver::result::launch_kernel(self.function, (1, 1, 1), (32, 1, 1), 0, stream, args)?;
            }
        }
        Ok(self.stream.synchronize()?)
    }
}

#[cfg(feature = "cust")]
mod with_cust {
    use cust::context::{Context, CurrentContext};
    use cust::module::Module;
    use cust::stream::{Stream, StreamFlags};

    use super::{Layer, NAME, PTX, Result};

    pub struct Cust {
        module: Module,
        stream: Stream,
        context: Context,
    }

    impl Cust {
        pub fn new() -> Result<Cust> {
            let context = cust::quick_init()?;
            let module = Module::from_ptx(PTX.trim_end_matches('\0'), &[])?;
            Ok(Cust { module, stream: Stream::new(StreamFlags::NON_BLOCKING, None)?, context })
        }
    }

    impl Layer for Cust {
        fn name(&self) -> &'static str {
            "cust"
        }

        fn launch(&self, times: usize) -> Result<()> {
            CurrentContext::set_current(&self.context)?;
            let (function, stream) = (self.module.get_function(NAME)?, &self.stream);
            for _ in 0..times {
                // SAFETY: the kernel takes one number.
                unsafe { cust::launch!(function<<<1, 32, 0, stream>>>(7u64)) }?;
            }
            Ok(self.stream.synchronize()?)
        }
    }
}

fn layers() -> Result<Vec<Box<dyn Layer>>> {
    Ok(vec![
        Box::new(Cudarc::new()?),
        #[cfg(feature = "cust")]
        Box::new(with_cust::Cust::new()?),
    ])
}

fn main() -> Result<()> {
    if !std::env::args().any(|arg| arg == "--real") {
        gpusim::install()?;
    }
    let layers = layers()?;
    let mut times = vec![Vec::new(); layers.len()];
    layers.iter().try_for_each(|layer| layer.launch(LAUNCHES))?;
    for _ in 0..ROUNDS {
        for (layer, times) in layers.iter().zip(&mut times) {
            let start = Instant::now();
            layer.launch(LAUNCHES)?;
            times.push(1e9 * start.elapsed().as_secs_f64() / LAUNCHES as f64);
        }
    }
    println!("device: {}", cudarc::driver::CudaContext::new(0)?.name()?);
    for (layer, times) in layers.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let (least, median, most) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
        println!(
            "{:<7} {median:.0} ns a launch (median of {ROUNDS} × {LAUNCHES}; {least:.0} to {most:.0})",
            layer.name()
        );
    }
    Ok(())
}
