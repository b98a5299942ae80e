//! Says of each PTX file whether gpusim understands it, with its kernels and their sizes.
//!
//!     cargo run --release -p gpusim --example check_ptx -- ptx/*.ptx

use std::process::ExitCode;

use gpusim::device::Device;

fn main() -> ExitCode {
    let mut refused = 0;
    for path in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                println!("{path}: {error}");
                refused += 1;
                continue;
            }
        };
        match Device::default().load(&text) {
            Ok(module) => {
                println!("{path}");
                for (name, kernel) in &module.kernels {
                    let (instructions, shared, local) =
                        (kernel.code.len() - 1, kernel.static_shared, kernel.local_size);
                    let columns = kernel.columns;
                    println!(
                        "    {name}: {instructions} instructions, {columns} columns, {shared} B shared, {local} B local"
                    );
                }
            }
            Err(error) => {
                println!("{path}: {error}");
                refused += 1;
            }
        }
    }
    if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
