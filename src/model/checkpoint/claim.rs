//! Which tensor on disk is which tensor of the model.

use std::collections::HashMap;
use std::path::Path;

use crate::model::config::{DiskLayout, TensorSpec};
use crate::{Error, Result};

/// A tensor that is offered: from a file, or to be carried into one.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    pub file: &'a Path,
    pub name: &'a str,
    pub shape: &'a [usize],
}

/// A tensor's place in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canonical {
    /// The name in memory, see [`TensorSpec::name`].
    pub name: String,
    /// Which part of a stacked tensor it is.
    pub expert: Option<usize>,
}

/// Undoes the names' variety: the prefix `backbone.` or `model.`; `embeddings`, `embedding` or `embed_tokens`; a layer's
/// experts stacked (`mixer.experts.up_proj`) or one by one (`mixer.experts.7.up_proj.weight`).
pub fn canonical(name: &str) -> Canonical {
    let Some(rest) = name.strip_prefix("backbone.").or_else(|| name.strip_prefix("model.")) else {
        return of_experts(name.to_owned());
    };
    match rest {
        "embeddings.weight" | "embedding.weight" | "embed_tokens.weight" => {
            Canonical { name: "backbone.embeddings.weight".into(), expert: None }
        }
        _ => of_experts(format!("backbone.{rest}")),
    }
}

fn of_experts(name: String) -> Canonical {
    match split_experts(&name) {
        Some((layer, expert, projection)) => {
            Canonical { name: format!("{layer}.mixer.experts.{projection}.weight"), expert }
        }
        None => Canonical { name, expert: None },
    }
}

/// The layer, the expert where the name tells one, and the projection; `None` for another tensor's name.
fn split_experts(name: &str) -> Option<(&str, Option<usize>, &str)> {
    let (layer, rest) = name.split_once(".mixer.experts.")?;
    if let "up_proj" | "down_proj" = rest {
        return Some((layer, None, rest));
    }
    let rest = rest.strip_suffix(".weight")?;
    let (expert, projection) = match rest.split_once('.') {
        Some((number, projection)) => (Some(expert_number(number)?), projection),
        None => (None, rest),
    };
    matches!(projection, "up_proj" | "down_proj").then_some((layer, expert, projection))
}

fn expert_number(text: &str) -> Option<usize> {
    text.parse::<usize>().ok().filter(|number| number.to_string() == text)
}

/// Which offer is which part of which tensor. Every offer has a place and every place has one offer.
#[derive(Debug)]
pub struct Claims {
    /// From (spec, expert) to offer; a tensor that lies whole has no expert.
    offers: HashMap<(usize, Option<usize>), usize>,
}

impl Claims {
    /// The offers that make up spec number `spec`: one, or one for each expert in order.
    pub fn parts(&self, spec: usize, of: &TensorSpec) -> Vec<usize> {
        match self.offers.get(&(spec, None)) {
            Some(&whole) => vec![whole],
            None => (0..of.disk_count()).filter_map(|expert| self.offers.get(&(spec, Some(expert))).copied()).collect(),
        }
    }
}

/// Gives each offer its place among `specs`, or refuses by name: a tensor without a place, one of the wrong shape, two
/// for one place, a place without a tensor. `dir` is where a missing one was looked for.
pub fn claim(dir: &Path, specs: &[TensorSpec], offers: &[Offer]) -> Result<Claims> {
    let by_name: HashMap<&str, usize> = specs.iter().enumerate().map(|(i, spec)| (spec.name.as_str(), i)).collect();
    let mut claims = Claims { offers: HashMap::with_capacity(offers.len()) };
    // For each stacked tensor the way it was first offered.
    let mut first: HashMap<usize, (bool, usize)> = HashMap::new();
    let mut strangers = Vec::new();
    for (i, offer) in offers.iter().enumerate() {
        let Canonical { name, expert } = canonical(offer.name);
        let Some(&spec) = by_name.get(name.as_str()).filter(|&&spec| has_part(&specs[spec], expert)) else {
            strangers.push(i);
            continue;
        };
        let expected = if expert.is_some() { specs[spec].disk_shape() } else { whole_shape(&specs[spec]) };
        if offer.shape != expected {
            return Err(Error::input(
                offer.file,
                offer.name,
                format!("shape {:?}", offer.shape),
                format!("{expected:?}"),
            ));
        }
        let (whole, before) = *first.entry(spec).or_insert((expert.is_none(), i));
        let twice = claims.offers.insert((spec, expert), i);
        if let Some(other) = twice.or((whole != expert.is_none()).then_some(before)) {
            let found = format!("the same tensor also as {} in {}", offers[other].name, offers[other].file.display());
            return Err(Error::input(offer.file, offer.name, found, "each tensor once"));
        }
    }
    refuse_strangers(offers, &strangers)?;
    refuse_missing(dir, specs, &claims)?;
    Ok(claims)
}

fn has_part(spec: &TensorSpec, expert: Option<usize>) -> bool {
    match (&spec.disk, expert) {
        (_, None) => true,
        (DiskLayout::PerExpert { .. }, Some(expert)) => expert < spec.disk_count(),
        (DiskLayout::Same(_), Some(_)) => false,
    }
}

fn whole_shape(spec: &TensorSpec) -> &[usize] {
    match &spec.disk {
        DiskLayout::Same(shape) => shape,
        DiskLayout::PerExpert { .. } => &spec.shape,
    }
}

fn refuse_strangers(offers: &[Offer], strangers: &[usize]) -> Result<()> {
    let Some(&first) = strangers.first() else { return Ok(()) };
    let found = match strangers.len() - 1 {
        0 => "a tensor that the configuration has no place for".into(),
        more => format!("a tensor that the configuration has no place for, as are {more} more"),
    };
    Err(Error::input(offers[first].file, offers[first].name, found, "only the model's tensors"))
}

fn refuse_missing(dir: &Path, specs: &[TensorSpec], claims: &Claims) -> Result<()> {
    let lacks = |(i, spec): &(usize, &TensorSpec)| {
        let whole = claims.offers.contains_key(&(*i, None));
        let part = (0..spec.disk_count()).find(|&part| !whole && !claims.offers.contains_key(&(*i, Some(part))));
        part.map(|part| spec.disk_name(part))
    };
    let missing: Vec<String> = specs.iter().enumerate().filter_map(|pair| lacks(&pair)).collect();
    let Some(first) = missing.first() else { return Ok(()) };
    let found = match missing.len() - 1 {
        0 => "no such tensor".into(),
        more => format!("no such tensor, and {more} more places without one"),
    };
    Err(Error::input(dir, first, found, "every tensor of the configuration"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_canonical_form() {
        let up = "backbone.layers.3.mixer.experts.up_proj.weight";
        for (name, expected, expert) in [
            ("model.embed_tokens.weight", "backbone.embeddings.weight", None),
            ("backbone.embedding.weight", "backbone.embeddings.weight", None),
            ("model.layers.3.mixer.experts.up_proj", up, None),
            ("backbone.layers.3.mixer.experts.up_proj.weight", up, None),
            ("model.layers.3.mixer.experts.12.up_proj.weight", up, Some(12)),
            (
                "backbone.layers.3.mixer.experts.012.up_proj.weight",
                "backbone.layers.3.mixer.experts.012.up_proj.weight",
                None,
            ),
            (
                "backbone.layers.3.mixer.experts.+1.up_proj.weight",
                "backbone.layers.3.mixer.experts.+1.up_proj.weight",
                None,
            ),
            (
                "backbone.layers.3.mixer.experts.1.gate_proj.weight",
                "backbone.layers.3.mixer.experts.1.gate_proj.weight",
                None,
            ),
            ("mtp.layers.1.mixer.experts.2.down_proj.weight", "mtp.layers.1.mixer.experts.down_proj.weight", Some(2)),
            ("lm_head.weight", "lm_head.weight", None),
            ("model.norm_f.weight", "backbone.norm_f.weight", None),
        ] {
            assert_eq!(canonical(name), Canonical { name: expected.into(), expert }, "{name}");
        }
    }
}
