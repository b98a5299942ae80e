use super::bench::Float;
use crate::autograd::check::{Generator, Input, Reference};

/// Inputs, what the reference makes of them, and a gradient of each output to start from.
pub struct Problem {
    pub names: Vec<&'static str>,
    pub inputs: Vec<Vec<f32>>,
    /// The inputs in f64.
    pub exact: Vec<Vec<f64>>,
    pub reference: Reference,
    pub expected: Vec<Vec<f64>>,
    pub seeds: Vec<Vec<f32>>,
}

impl Problem {
    /// The inputs are rounded to the types that they are stored in, the gradients of the outputs to `dtype`.
    pub fn new(
        dtype: Float,
        inputs: Vec<(Input, Float)>,
        reference: impl Fn(&[Vec<f64>]) -> Vec<Vec<f64>> + Send + Sync + 'static,
    ) -> Problem {
        let names = inputs.iter().map(|(input, _)| input.name).collect();
        let inputs: Vec<Vec<f32>> = inputs.into_iter().map(|(input, stored)| stored.round(&input.values)).collect();
        let exact: Vec<Vec<f64>> = inputs.iter().map(|v| v.iter().map(|v| f64::from(*v)).collect()).collect();
        let expected = reference(&exact);
        let mut generator = Generator::new(0x5eed);
        let mut seed = |o: &Vec<f64>| dtype.round(&generator.values(o.len(), |noise, i| noise.normal(i)));
        let seeds = expected.iter().map(&mut seed).collect();
        Problem { names, inputs, exact, reference: Box::new(reference), expected, seeds }
    }
}
