//! Sorting is a pure permutation: the logits stay.

use autocompress::model::Lm;
use autocompress::model::config::Layer;
use autocompress::supernet::{Calibrator, Importance, Scores, Units, sort};

use crate::common::largest_difference;
use crate::models::{batch, fixture, grouped_model, logits, random_importance};

fn calibrated(lm: &Lm) -> Importance {
    let (tokens, segments) = batch(lm.config.vocab_size, 24);
    let mut calibrator = Calibrator::new(lm);
    calibrator.add(&tokens, &segments).unwrap();
    calibrator.finish().unwrap()
}

#[test]
fn the_sorted_model_has_the_parents_logits() {
    let models = [fixture("base"), fixture("latent"), fixture("base_bf16"), grouped_model()];
    for (i, lm) in models.iter().enumerate() {
        let (tokens, segments) = batch(lm.config.vocab_size, 37);
        let before = logits(lm, &tokens, &segments, None);
        for importance in [calibrated(lm), random_importance(&lm.config, i as u64)] {
            let sorted = sort(lm, &importance).unwrap();
            let moved = |name: &str| {
                let value = |lm: &Lm| lm.params.get(lm.params.find(name).unwrap()).value.f32().to_vec();
                value(lm) != value(&sorted)
            };
            assert!(moved("backbone.embeddings.weight") && moved("backbone.layers.0.mixer.in_proj.weight"));
            let off = largest_difference(logits(&sorted, &tokens, &segments, None).f32(), before.f32());
            assert!(off <= 1e-4, "model {i}: logits off by {off}");
        }
    }
}

#[test]
fn the_sorted_model_is_in_order() {
    // Measured again after sorting, every score falls along its axis, but for the rounding of neighbours that are all but
    // equal.
    fn falls(what: &str, scores: &[f32], group: usize) {
        for run in scores.chunks(group) {
            assert!(run.windows(2).all(|w| w[1] <= w[0] * 1.0001 + 1e-6), "{what}: {run:?}");
        }
    }
    for lm in [fixture("base"), grouped_model()] {
        assert!(calibrated(&lm).hidden.windows(2).any(|w| w[0] < w[1]));
        let again = calibrated(&sort(&lm, &calibrated(&lm)).unwrap());
        falls("hidden", &again.hidden, 64);
        for (layer, sizes) in again.layers.iter().zip(&lm.config.layers) {
            match (&layer.scores, sizes) {
                (Scores::Mamba { heads }, Layer::Mamba(m)) => falls("heads", heads, m.heads / m.groups),
                (Scores::Mlp { width }, _) => falls("width", width, width.len()),
                (Scores::Moe { experts, routed, shared }, Layer::Moe(m)) => {
                    falls("experts", experts, m.experts / m.n_group);
                    falls("shared", shared, shared.len());
                    routed.iter().for_each(|scores| falls("routed", scores, scores.len()));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn ties_go_to_the_lower_index_and_groups_stay() {
    let lm = grouped_model();
    let mut importance = random_importance(&lm.config, 1);
    importance.hidden.fill(1.0);
    let ranking = importance.ranking(&lm.config).unwrap();
    assert!(ranking.hidden.iter().copied().eq(0..64));
    let Units::Mamba { heads } = &ranking.layers[0].units else { panic!() };
    let Units::Moe { experts, .. } = &ranking.layers[1].units else { panic!() };
    for order in [heads, experts] {
        let (mut first, mut second) = (order[..4].to_vec(), order[4..].to_vec());
        assert!(first.windows(2).any(|w| w[0] > w[1]) || second.windows(2).any(|w| w[0] > w[1]), "{order:?}");
        first.sort_unstable();
        second.sort_unstable();
        assert_eq!((first, second), (vec![0, 1, 2, 3], vec![4, 5, 6, 7]));
    }
}

#[test]
fn scores_of_another_model_are_refused() {
    let lm = fixture("base");
    let mut importance = random_importance(&lm.config, 1);
    importance.hidden.pop();
    let error = sort(&lm, &importance).err().unwrap().to_string();
    assert!(error.contains("hidden") && error.contains("63") && error.contains("64"), "{error}");
    let mut importance = random_importance(&lm.config, 1);
    importance.hidden[3] = f32::NAN;
    assert!(sort(&lm, &importance).err().unwrap().to_string().contains("finite"));
    let mut importance = random_importance(&lm.config, 1);
    importance.layers.swap(0, 1);
    assert!(sort(&lm, &importance).err().unwrap().to_string().contains("mamba"));
}
