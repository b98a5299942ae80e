use std::process::Command;

use serde::Serialize;

/// What a device draws and how fast it runs right after a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Power {
    /// MHz.
    pub multiprocessor_clock: f64,
    pub memory_clock: f64,
    pub watts: f64,
    /// °C.
    pub temperature: f64,
}

impl Power {
    /// As nvidia-smi tells it; `None` where there is none, or where it does not know.
    pub fn now(ordinal: usize) -> Option<Power> {
        let query = "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu";
        let mut command = Command::new("nvidia-smi");
        command.args([query, "--format=csv,noheader,nounits", &format!("--id={ordinal}")]);
        parse(&String::from_utf8_lossy(&command.output().ok()?.stdout))
    }
}

fn parse(text: &str) -> Option<Power> {
    let numbers: Vec<f64> = text.trim().split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
    let [multiprocessor_clock, memory_clock, watts, temperature] = numbers[..] else { return None };
    Some(Power { multiprocessor_clock, memory_clock, watts, temperature })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_nvidia_smi_are_read() {
        let power = parse("1980, 2619, 412.51, 47\n").unwrap();
        assert_eq!((power.multiprocessor_clock, power.watts, power.temperature), (1980.0, 412.51, 47.0));
        assert_eq!(parse("1980, 2619, [N/A], 47"), None);
        assert_eq!(parse(""), None);
    }
}
