//! What an architecture costs on a deployment.
//!
//! A [`Contract`] says where a model is served and what it may cost. [`profile()`] measures a [`Plan`] of short models on the
//! serving engine and gives a [`Table`]; a [`CostModel`] turns that into resources. Every resource with a limit (latency,
//! memory, serving time) is a [`Resource`]: tables over gates, from which the hard cost of an architecture, the exact
//! expectation over soft choices and the repair all read. [`measure()`] measures real models, [`validate()`] compares.

mod configurations;
mod contract;
mod device_spec;
mod dummy;
mod measure;
mod model;
mod origin;
mod plan;
mod profile;
mod request;
mod resource;
pub mod roofline;
mod table;
pub mod trace;
mod training;
mod validate;
pub mod vllm;

pub use configurations::{Configurations, LayerConfigurations};
pub use contract::{
    Contract, Device, Engine, Explanation, Finding, Format, GPUS, Intended, Limits, MoeBackend, Precision, Vllm,
};
pub use device_spec::{DeviceSpec, Flops};
pub use dummy::Dummy;
pub use measure::{Measurement, measure, weight_bytes};
pub use model::{CostModel, MIB, PartPrediction, Prediction};
pub use origin::{Elsewhere, Origin};
pub use plan::{Plan, Run};
pub use profile::{ProfileOptions, profile};
pub use request::RequestTime;
pub use resource::{CountTerm, LayerTerm, Resource};
pub use table::{Cost, Key, MODEL, Measure, REST, Table, part_name, quantile};
pub use training::{Job, TrainedPart, TrainingBytes, TrainingCost, forward_flops};
pub use validate::{Errors, Validation, compare, validate};
