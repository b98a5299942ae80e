//! Two passes over a check: whatever is compared in the second must have the bits that it had in the first.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt::Debug;

use bytemuck::NoUninit;

/// A tensor as the first pass had it.
struct Seen {
    case: String,
    what: String,
    /// The `Vec` of its elements.
    values: Box<dyn Any>,
}

/// Which pass a check is in.
pub enum Pass {
    /// There is no other.
    Only,
    First(Tensors),
    Second(Tensors),
}

/// Tensors in the order in which they were compared.
#[derive(Default)]
pub struct Tensors(VecDeque<Seen>);

impl Pass {
    /// In a second pass, whether `got` is what the first had in this place; says what differs. None in a first pass.
    pub fn see<T>(&mut self, case: &str, what: &str, got: &[T]) -> Option<Result<(), String>>
    where
        T: NoUninit + Debug,
    {
        match self {
            Pass::Only => None,
            Pass::First(tensors) => {
                tensors.0.push_back(Seen { case: case.into(), what: what.into(), values: Box::new(got.to_vec()) });
                None
            }
            Pass::Second(tensors) => Some(match tensors.0.pop_front() {
                Some(seen) => seen.same(case, what, got),
                None => Err(format!("{what} was compared in the second run alone")),
            }),
        }
    }

    /// The pass that follows.
    pub fn next(self) -> Pass {
        match self {
            Pass::First(tensors) => Pass::Second(tensors),
            Pass::Only | Pass::Second(_) => Pass::Only,
        }
    }

    /// What the first pass compared and the second has not, in words.
    pub fn missing(&self) -> Option<String> {
        match self {
            Pass::Second(tensors) => tensors
                .0
                .front()
                .map(|seen| format!("{}: {} was compared in the first run alone", seen.case, seen.what)),
            Pass::Only | Pass::First(_) => None,
        }
    }
}

impl Seen {
    fn same<T: NoUninit + Debug>(&self, case: &str, what: &str, got: &[T]) -> Result<(), String> {
        let before = self.values.downcast_ref::<Vec<T>>().filter(|_| self.case == case && self.what == what);
        let Some(before) = before else {
            return Err(format!("{what} was compared where the first run had {} of {}", self.what, self.case));
        };
        if before.len() != got.len() {
            return Err(format!("{what}: {} elements in one run, {} in another", before.len(), got.len()));
        }
        let bits = |values: &[T], at: usize| bytemuck::bytes_of(&values[at]).to_vec();
        match (0..got.len()).find(|at| bits(before, *at) != bits(got, *at)) {
            Some(at) => Err(format!("{what}[{at}] is {:?} in one run and {:?} in another", before[at], got[at])),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice(first: &[f32], second: &[f32]) -> Result<(), String> {
        let mut pass = Pass::First(Tensors::default());
        assert!(pass.see("a case", "y", first).is_none());
        let mut pass = pass.next();
        assert_eq!(pass.missing().unwrap(), "a case: y was compared in the first run alone");
        let result = pass.see("a case", "y", second).unwrap();
        assert!(pass.missing().is_none() && pass.see("a case", "y", second).unwrap().is_err());
        result
    }

    #[test]
    fn bits_that_differ_are_named() {
        let almost = f32::from_bits(1f32.to_bits() + 1);
        assert_eq!(twice(&[0.5, 1.0, f32::NAN], &[0.5, 1.0, f32::NAN]), Ok(()));
        assert_eq!(twice(&[0.5, 1.0], &[0.5, almost]).unwrap_err(), "y[1] is 1.0 in one run and 1.0000001 in another");
        assert_eq!(twice(&[0.0], &[-0.0]).unwrap_err(), "y[0] is 0.0 in one run and -0.0 in another");
        assert_eq!(twice(&[0.0], &[]).unwrap_err(), "y: 1 elements in one run, 0 in another");
    }

    #[test]
    fn other_tensors_are_none_of_the_first_run() {
        let mut pass = Pass::First(Tensors::default());
        assert!(pass.see("a case", "y", &[1u32]).is_none());
        let mut pass = pass.next();
        assert!(pass.see("a case", "y", &[1.0f32]).unwrap().unwrap_err().contains("had y of a case"));
    }
}
