use std::fmt::Debug;

use bytemuck::NoUninit;
use half::bf16;

use super::super::embedded::abi;
use super::super::{Arguments, Cuda, CudaError, DeviceBuffer};
use super::Outcome;
use super::placed::{Placed, Places, filler};
use super::problem::Problem;
use super::twice::Pass;
use crate::autograd::check::{self, Tolerance};

/// How a tensor's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float {
    F32,
    Bf16,
}

impl Float {
    pub const BOTH: [Float; 2] = [Float::F32, Float::Bf16];

    pub fn name(self) -> &'static str {
        match self {
            Float::F32 => "f32",
            Float::Bf16 => "bf16",
        }
    }

    /// Of an element.
    pub fn bytes(self) -> usize {
        match self {
            Float::F32 => 4,
            Float::Bf16 => 2,
        }
    }

    /// The nearest values of this type.
    pub fn round(self, values: &[f32]) -> Vec<f32> {
        match self {
            Float::F32 => values.to_vec(),
            Float::Bf16 => values.iter().map(|v| bf16::from_f32(*v).to_f32()).collect(),
        }
    }

    /// What a result stored in this type may be off by: bf16 rounds by up to 2⁻⁸ of the value.
    pub fn tolerance(self) -> Tolerance {
        match self {
            Float::F32 => Tolerance::default(),
            Float::Bf16 => Tolerance { value: 1.0 / 128.0, grad: 1.0 / 64.0 },
        }
    }
}

/// A tensor on the device.
pub enum Data {
    F32(Placed<f32>),
    Bf16(Placed<bf16>),
}

impl Data {
    pub fn ptr<P>(&self) -> *mut P {
        self.ptr_at(0)
    }

    /// The address of element `at`.
    pub fn ptr_at<P>(&self, at: usize) -> *mut P {
        match self {
            Data::F32(placed) => placed.ptr::<f32>().wrapping_add(at).cast(),
            Data::Bf16(placed) => placed.ptr::<bf16>().wrapping_add(at).cast(),
        }
    }

    pub fn read(&self) -> Result<Vec<f32>, CudaError> {
        match self {
            Data::F32(placed) => placed.read(),
            Data::Bf16(placed) => Ok(placed.read()?.into_iter().map(bf16::to_f32).collect()),
        }
    }
}

/// The device with what its kernels have come to so far.
pub struct Bench<'d> {
    pub cuda: &'d Cuda,
    pub outcome: Outcome,
    /// Names faults.
    case: String,
    /// The kernel that alone is of interest; then the first fault ends the check.
    only: Option<String>,
    /// What a second run is held against.
    pub pass: Pass,
    /// Where buffers start.
    pub places: Places,
    /// Whether fresh buffers are filled with NaN, so that an element that was not written shows. gpusim's are, and it
    /// sees reads of them.
    poison: bool,
}

impl<'d> Bench<'d> {
    pub fn new(cuda: &'d Cuda, outcome: Outcome, only: Option<&str>, pass: Pass) -> Bench<'d> {
        let only = only.map(str::to_owned);
        let places = Places::default();
        Bench { cuda, outcome, case: String::new(), only, pass, places, poison: cuda.name != "gpusim" }
    }

    /// Whether results are held against those of the first run alone: what they must be need not be found again.
    pub fn is_second(&self) -> bool {
        matches!(self.pass, Pass::Second(_))
    }

    /// Whether cases that are there for such kernels alone are to run.
    pub fn wants(&self, such: impl Fn(&str) -> bool) -> bool {
        self.only.as_deref().is_none_or(such)
    }

    /// The dtypes whose cases are to run: cases in f32 launch no kernel of bf16.
    pub fn dtypes(&self) -> Vec<Float> {
        let skips_f32 = self.only.as_deref().is_some_and(|only| only.ends_with("_bf16"));
        if skips_f32 { vec![Float::Bf16] } else { Float::BOTH.to_vec() }
    }

    /// What follows belongs to this case.
    pub fn case(&mut self, name: impl Into<String>) {
        self.case = name.into() + &self.places.text();
    }

    /// Runs a case again and again: each time another of its buffers starts off 16 bytes, by one element and by 8 bytes.
    pub fn off_16_bytes(&mut self, case: impl Fn(&mut Self) -> Result<(), CudaError>) -> Result<(), CudaError> {
        for by_one in [true, false] {
            for buffer in 0.. {
                self.places = Places::new(buffer, by_one);
                case(self)?;
                if !self.places.is_met() {
                    break;
                }
            }
        }
        self.places = Places::default();
        Ok(())
    }

    /// `values` on the device.
    pub fn put(&self, dtype: Float, values: &[f32]) -> Result<Data, CudaError> {
        Ok(match dtype {
            Float::F32 => Data::F32(self.places.put(self.cuda, values)?),
            Float::Bf16 => {
                let values: Vec<bf16> = values.iter().map(|v| bf16::from_f32(*v)).collect();
                Data::Bf16(self.places.put(self.cuda, &values)?)
            }
        })
    }

    /// Room for a result.
    pub fn room(&self, dtype: Float, len: usize) -> Result<Data, CudaError> {
        Ok(match dtype {
            Float::F32 => Data::F32(self.placed(len)?),
            Float::Bf16 => Data::Bf16(self.placed(len)?),
        })
    }

    /// Room for numbers of any type, which may start off 16 bytes.
    pub fn placed<T: bytemuck::Pod>(&self, len: usize) -> Result<Placed<T>, CudaError> {
        match self.places.next::<T>() {
            0 => Ok(Placed::new(self.numbers(len)?, 0)),
            before => Ok(Placed::new(self.cuda.upload(&vec![filler(); before + len])?, before)),
        }
    }

    /// Room for numbers of any type.
    pub fn numbers<T: bytemuck::Pod>(&self, len: usize) -> Result<DeviceBuffer<T>, CudaError> {
        let mut buffer = self.cuda.buffer(len)?;
        if self.poison {
            buffer.fill_bytes(0xFF)?;
        }
        Ok(buffer)
    }

    /// A step's state on the device.
    pub fn state(&self, state: abi::StepState) -> Result<DeviceBuffer<u8>, CudaError> {
        // SAFETY: plain data without padding (cuda/abi.h).
        let bytes = unsafe { std::slice::from_raw_parts((&raw const state).cast(), size_of::<abi::StepState>()) };
        self.cuda.upload(bytes)
    }

    /// Launches a kernel of this check.
    pub fn launch<A: Arguments>(&mut self, symbol: &str, args: &A) -> Result<(), CudaError> {
        if let Some(fault) = self.outcome.faults.first().filter(|_| self.only.is_some()) {
            return Err(CudaError::Wrong(fault.clone()));
        }
        if !self.outcome.symbols.contains(symbol) {
            self.outcome.symbols.insert(symbol.into());
        }
        // SAFETY: the checks' buffers have the sizes that abi.h asks for, and outlive the launch: freeing waits for it.
        unsafe { self.cuda.launch(symbol, args) }
            .map_err(|e| CudaError::InCase { case: self.case.clone(), source: Box::new(e) })
    }

    /// Holds `got` against exact values.
    pub fn compare(&mut self, what: &str, got: &[f32], want: &[f64], tolerance: f64) {
        if self.is_seen(what, got) {
            return;
        }
        let got: Vec<f64> = got.iter().map(|v| f64::from(*v)).collect();
        self.note(check::compare(what, &got, want, tolerance));
    }

    /// Holds integers, or bits, against what they must be.
    pub fn equal<T: PartialEq + Debug + NoUninit>(&mut self, what: &str, got: &[T], want: &[T]) {
        if self.is_seen(what, got) {
            return;
        }
        let differing = got.iter().zip(want).position(|(a, b)| a != b);
        self.note(match differing {
            _ if got.len() != want.len() => Err(format!("{what}: {} elements, expected {}", got.len(), want.len())),
            Some(at) => Err(format!("{what}[{at}] is {:?}, expected {:?}", got[at], want[at])),
            None => Ok(()),
        });
    }

    /// Holds an output of the problem, stored as `dtype`, against the reference's.
    pub fn value(&mut self, problem: &Problem, output: usize, got: &Data, dtype: Float) -> Result<(), CudaError> {
        let got = got.read()?;
        self.compare(&format!("output {output}"), &got, &problem.expected[output], dtype.tolerance().value);
        Ok(())
    }

    /// Holds the gradient of input `input` against differences of the reference.
    pub fn gradient(&mut self, problem: &Problem, input: usize, got: &[f32], tolerance: f64) {
        let what = format!("gradient of {}", problem.names[input]);
        if self.is_seen(&what, got) {
            return;
        }
        let wide: Vec<f64> = got.iter().map(|v| f64::from(*v)).collect();
        let expected = problem.exact[input].len();
        if wide.len() != expected {
            self.note(Err(format!("{what}: {} elements, expected {expected}", wide.len())));
            return;
        }
        if let Some(at) = wide.iter().position(|v| !v.is_finite()) {
            self.note(Err(format!("{what}[{at}] is {}", wide[at])));
            return;
        }
        let (along, want) = check::differences(&problem.reference, &problem.exact, &problem.seeds, input, &wide);
        self.note(check::compare(&what, &along, &want, tolerance));
    }

    /// Holds `got` against the first run alone.
    pub fn again<T: Debug + NoUninit>(&mut self, what: &str, got: &[T]) {
        self.is_seen(what, got);
    }

    /// Whether this is the second run, and `got` was held against the first.
    fn is_seen<T: Debug + NoUninit>(&mut self, what: &str, got: &[T]) -> bool {
        let Some(result) = self.pass.see(&self.case, what, got) else { return false };
        self.outcome.faults.extend(result.err().map(|text| format!("{}: {text}", self.case)));
        true
    }

    fn note(&mut self, result: Result<(), String>) {
        self.outcome.comparisons += 1;
        if let Err(text) = result {
            self.outcome.faults.push(format!("{}: {text}", self.case));
        }
    }
}
