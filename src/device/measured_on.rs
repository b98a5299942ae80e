//! What times and bytes belong to.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Place, Precision, current};

/// The device that models are served and measured on, and what they are served in. Numbers of another one do not compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredOn {
    /// `cpu`, or the GPU's name.
    pub device: String,
    /// The driver's version of CUDA, such as 12.4; `None` on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Of weights and activations.
    pub precision: Precision,
    /// Whether an interpreter counted: its times mean nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
}

impl MeasuredOn {
    /// Where models that begin now are served.
    pub fn current() -> MeasuredOn {
        current().as_ref().map_or_else(MeasuredOn::default, MeasuredOn::place)
    }

    fn place(Place { gpu, precision }: &Place) -> MeasuredOn {
        MeasuredOn {
            device: gpu.name.clone(),
            cuda: Some(format!("{}.{}", gpu.driver / 1000, gpu.driver % 1000 / 10)),
            // Quantised products are training's: the engine has none.
            precision: if precision.is_narrow() { Precision::Bf16 } else { Precision::F32 },
            simulated: gpu.is_simulated(),
        }
    }

    pub fn is_cpu(&self) -> bool {
        self.cuda.is_none()
    }

    /// The device and its driver.
    pub fn device_text(&self) -> String {
        let cuda = self.cuda.as_ref().map_or(String::new(), |cuda| format!(", CUDA {cuda}"));
        let simulated = if self.simulated { " (an interpreter: no times)" } else { "" };
        format!("{}{cuda}{simulated}", self.device)
    }
}

/// This machine's processor.
impl Default for MeasuredOn {
    fn default() -> Self {
        MeasuredOn { device: "cpu".into(), cuda: None, precision: Precision::F32, simulated: false }
    }
}

impl fmt::Display for MeasuredOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.device_text(), self.precision.name())
    }
}
