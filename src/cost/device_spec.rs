//! What a device can do: the files of `presets/devices`.

use std::path::Path;

use serde::Deserialize;

use super::contract::{Device, Format};
use crate::{Error, Result, config_file, files};

/// A device's rates, from its maker's documents.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    pub name: String,
    pub memory_bytes: u64,
    /// Bytes per second.
    pub bandwidth: f64,
    /// Microseconds that a kernel takes at least.
    pub launch_us: f64,
    pub flops: Flops,
}

/// Dense floating-point operations per second; `None` where the device has no such units.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flops {
    pub f32: f64,
    pub bf16: Option<f64>,
    pub fp8: Option<f64>,
    pub nvfp4: Option<f64>,
}

impl DeviceSpec {
    /// Of a preset, or read from a file.
    ///
    /// # Errors
    /// [`Error::Input`] naming the file and the key where a rate is no number above 0.
    pub fn of(device: &Device) -> Result<DeviceSpec> {
        let preset = |name: &str, text: &str| DeviceSpec::from_toml(Path::new(&format!("{name}.toml")), text);
        match device {
            Device::Cpu => preset("cpu", include_str!("../../presets/devices/cpu.toml")),
            Device::Gpu(name @ "rtx-5070") => preset(name, include_str!("../../presets/devices/rtx-5070.toml")),
            Device::Gpu(name @ "rtx-5080") => preset(name, include_str!("../../presets/devices/rtx-5080.toml")),
            Device::Gpu(name @ "h100") => preset(name, include_str!("../../presets/devices/h100.toml")),
            Device::Gpu(name @ "b200") => preset(name, include_str!("../../presets/devices/b200.toml")),
            Device::Gpu(name) => preset(name, include_str!("../../presets/devices/gb200.toml")),
            Device::File(path) => DeviceSpec::from_toml(path, &files::read_text(path)?),
        }
    }

    /// Parses `text`; `file` is for error messages only.
    pub fn from_toml(file: &Path, text: &str) -> Result<DeviceSpec> {
        let spec: DeviceSpec = config_file::parse(file, text, "a device")?;
        let rates = [
            ("bandwidth", Some(spec.bandwidth)),
            ("flops.f32", Some(spec.flops.f32)),
            ("flops.bf16", spec.flops.bf16),
            ("flops.fp8", spec.flops.fp8),
            ("flops.nvfp4", spec.flops.nvfp4),
        ];
        for (key, rate) in rates {
            if let Some(rate) = rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
                return Err(Error::input(file, key, rate.to_string(), "a number above 0"));
            }
        }
        if !(spec.launch_us.is_finite() && spec.launch_us >= 0.0) {
            return Err(Error::input(file, "launch_us", spec.launch_us.to_string(), "a number of at least 0"));
        }
        if spec.memory_bytes == 0 {
            return Err(Error::input(file, "memory_bytes", "0", "a number above 0"));
        }
        Ok(spec)
    }

    /// The rate of products in `format`, `None` where the device lacks it.
    pub fn rate(&self, format: Format) -> Option<f64> {
        match format {
            Format::F32 => Some(self.flops.f32),
            Format::Bf16 => self.flops.bf16,
            Format::Fp8 => self.flops.fp8,
            Format::Nvfp4 => self.flops.nvfp4,
        }
    }

    /// The rate of the nearest format that the device has: a lower one is unpacked to the next higher.
    pub fn rate_or_higher(&self, format: Format) -> f64 {
        let higher = [Format::Nvfp4, Format::Fp8, Format::Bf16, Format::F32];
        higher.into_iter().filter(|f| *f <= format).find_map(|f| self.rate(f)).unwrap_or(self.flops.f32)
    }
}
