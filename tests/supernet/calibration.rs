//! Importance against its formulas, written out in f64 for models of one layer.

use autocompress::model::Lm;
use autocompress::supernet::{Calibrator, Importance, Scores};
use autocompress::tensor::Segments;
use serde_json::json;

use crate::models::{batch, config_with, fixture, random_model};

/// Two sequences of unequal length.
fn tokens_and_segments() -> (Vec<u32>, Segments) {
    let (tokens, _) = batch(256, 15);
    (tokens, Segments::from_offsets(&[0, 11, 30]).unwrap())
}

fn measure(lm: &Lm) -> Importance {
    let (tokens, segments) = tokens_and_segments();
    let mut calibrator = Calibrator::new(lm);
    calibrator.add(&tokens, &segments).unwrap();
    calibrator.finish().unwrap()
}

fn model(kind: &str) -> Lm {
    random_model(config_with(json!({ "layers_block_type": [kind] })))
}

/// A matrix's or vector's rows, [rows][columns].
fn weight(lm: &Lm, name: &str) -> Vec<Vec<f64>> {
    let value = &lm.params.get(lm.params.find(name).unwrap_or_else(|| panic!("{name}"))).value;
    let width = value.shape().last();
    value.f32().chunks_exact(width).map(|row| row.iter().map(|v| f64::from(*v)).collect()).collect()
}

fn times(x: &[f64], rows: &[Vec<f64>]) -> Vec<f64> {
    rows.iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

fn relu2(x: Vec<f64>) -> Vec<f64> {
    x.into_iter().map(|x| x.max(0.0).powi(2)).collect()
}

/// Token by token: the residual stream before the layer, and normalised.
fn inputs(lm: &Lm) -> Vec<(Vec<f64>, Vec<f64>)> {
    let (table, norm) = (weight(lm, "backbone.embeddings.weight"), weight(lm, "backbone.layers.0.norm.weight"));
    let one = |id: &u32| {
        let h = table[*id as usize].clone();
        let rms = (h.iter().map(|x| x * x).sum::<f64>() / h.len() as f64 + 1e-5).sqrt();
        let x = h.iter().zip(&norm[0]).map(|(h, w)| h / rms * w).collect();
        (h, x)
    };
    tokens_and_segments().0.iter().map(one).collect()
}

/// √(Σ_b (mean_t |a|)²) over the tokens that `counts` names.
fn score(activations: &[Vec<f64>], counts: impl Fn(usize) -> bool) -> Vec<f64> {
    let mut squares = vec![0.0; activations.iter().map(Vec::len).max().unwrap()];
    for rows in [0..11, 11..30] {
        let rows: Vec<usize> = rows.filter(|t| counts(*t)).collect();
        for (c, square) in squares.iter_mut().enumerate().filter(|_| !rows.is_empty()) {
            *square += (rows.iter().map(|t| activations[*t][c].abs()).sum::<f64>() / rows.len() as f64).powi(2);
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

fn same(what: &str, got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*got) - want).abs() <= 1e-5 + 1e-4 * want, "{what}[{i}]: {got} instead of {want}");
    }
}

#[test]
fn an_mlp_layer() {
    let lm = model("mlp");
    let importance = measure(&lm);
    let inputs = inputs(&lm);
    let normed: Vec<Vec<f64>> = inputs.iter().map(|(_, x)| x.clone()).collect();
    same("hidden", &importance.hidden, &score(&normed, |_| true));
    let (up, down) = (
        weight(&lm, "backbone.layers.0.mixer.up_proj.weight"),
        weight(&lm, "backbone.layers.0.mixer.down_proj.weight"),
    );
    let activations: Vec<Vec<f64>> = normed.iter().map(|x| relu2(times(x, &up))).collect();
    let Scores::Mlp { width } = &importance.layers[0].scores else { panic!() };
    same("width", width, &score(&activations, |_| true));

    let change = |((h, _), a): (&(Vec<f64>, Vec<f64>), &Vec<f64>)| {
        let after: Vec<f64> = times(a, &down).iter().zip(h).map(|(y, h)| y + h).collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        1.0 - dot(h, &after) / (dot(h, h) * dot(&after, &after)).sqrt()
    };
    let want = inputs.iter().zip(&activations).map(change).sum::<f64>() / 30.0;
    assert!(want > 1e-3, "{want}");
    same("change", &[importance.layers[0].change], &[want]);
    assert_eq!((importance.sequences, importance.tokens), (2, 30));
}

#[test]
fn a_mamba_layer() {
    let lm = model("mamba");
    let rows = weight(&lm, "backbone.layers.0.mixer.in_proj.weight");
    // z | x | B | C | dt: x starts behind 8 heads of 16.
    let x: Vec<Vec<f64>> = inputs(&lm).iter().map(|(_, x)| times(x, &rows[128..256])).collect();
    let channels = score(&x, |_| true);
    let heads: Vec<f64> = channels.chunks(16).map(|h| h.iter().map(|s| s * s).sum::<f64>().sqrt()).collect();
    let Scores::Mamba { heads: got } = &measure(&lm).layers[0].scores else { panic!() };
    same("heads", got, &heads);
}

#[test]
fn a_moe_layer() {
    let mut lm = model("moe");
    // One expert that no token can reach.
    let bias = lm.params.find("backbone.layers.0.mixer.gate.e_score_correction_bias").unwrap();
    lm.params.get_mut(bias).value.f32_mut()[5] = -10.0;
    let at = |leaf: &str| format!("backbone.layers.0.mixer.{leaf}");
    let inputs = inputs(&lm);
    let (gate, bias) = (weight(&lm, &at("gate.weight")), weight(&lm, &at("gate.e_score_correction_bias")));
    let (up, down) = (weight(&lm, &at("experts.up_proj.weight")), weight(&lm, &at("experts.down_proj.weight")));
    let shared_up = weight(&lm, &at("shared_experts.up_proj.weight"));
    // [T]: the chosen experts and their weights.
    let routes: Vec<Vec<(usize, f64)>> = (inputs.iter())
        .map(|(_, x)| {
            let s: Vec<f64> = times(x, &gate).iter().map(|l| 1.0 / (1.0 + (-l).exp())).collect();
            let mut order: Vec<usize> = (0..8).collect();
            order.sort_by(|a, b| (s[*b] + bias[0][*b]).total_cmp(&(s[*a] + bias[0][*a])));
            let total: f64 = order[..3].iter().map(|e| s[*e]).sum();
            order[..3].iter().map(|e| (*e, 2.5 * s[*e] / total)).collect()
        })
        .collect();
    let Scores::Moe { experts, routed, shared } = &measure(&lm).layers[0].scores else { panic!() };
    let mut want = Vec::new();
    for e in 0..8 {
        let activations: Vec<Vec<f64>> =
            inputs.iter().map(|(_, x)| relu2(times(x, &up[e * 48..(e + 1) * 48]))).collect();
        let weight_of = |t: usize| routes[t].iter().find(|(expert, _)| *expert == e).map(|(_, w)| *w);
        same(&format!("expert {e}"), &routed[e], &score(&activations, |t| weight_of(t).is_some()));
        let norms: Vec<f64> = (0..inputs.len())
            .filter_map(|t| {
                let y = times(&activations[t], &down[e * 64..(e + 1) * 64]);
                Some(weight_of(t)? * y.iter().map(|y| y * y).sum::<f64>().sqrt())
            })
            .collect();
        want.push(norms.iter().sum::<f64>() / norms.len().max(1) as f64);
    }
    assert_eq!(experts[5], 0.0);
    same("experts", experts, &want);
    let activations: Vec<Vec<f64>> = inputs.iter().map(|(_, x)| relu2(times(x, &shared_up))).collect();
    same("shared", shared, &score(&activations, |_| true));
}

#[test]
fn batching_makes_no_difference() {
    let lm = fixture("latent");
    let (tokens, segments) = tokens_and_segments();
    let whole = measure(&lm);
    let mut calibrator = Calibrator::new(&lm);
    for rows in segments.iter() {
        calibrator.add(&tokens[rows.clone()], &Segments::uniform(1, rows.len())).unwrap();
    }
    let parts = calibrator.finish().unwrap();
    let wide = |scores: &[f32]| scores.iter().map(|s| f64::from(*s)).collect::<Vec<_>>();
    same("hidden", &parts.hidden, &wide(&whole.hidden));
    for (a, b) in parts.layers.iter().zip(&whole.layers) {
        match (&a.scores, &b.scores) {
            (Scores::Moe { experts, routed, shared }, Scores::Moe { experts: e, routed: r, shared: s }) => {
                same("experts", experts, &wide(e));
                same("shared", shared, &wide(s));
                routed.iter().zip(r).for_each(|(a, b)| same("routed", a, &wide(b)));
            }
            (Scores::Mamba { heads }, Scores::Mamba { heads: h }) => same("heads", heads, &wide(h)),
            (Scores::Mlp { width }, Scores::Mlp { width: w }) => same("width", width, &wide(w)),
            (a, b) => assert_eq!(a, b),
        }
    }
}

#[test]
fn scores_are_kept_in_a_file() {
    let importance = measure(&fixture("base"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("importance.json");
    importance.write(&path).unwrap();
    assert_eq!(Importance::from_file(&path).unwrap(), importance);
    std::fs::write(&path, "{\"hidden\": [1]}").unwrap();
    let error = Importance::from_file(&path).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("importance.json"), "{error}");
}

#[test]
fn nothing_and_nonsense_are_refused() {
    let mut lm = fixture("base");
    assert!(Calibrator::new(&lm).finish().unwrap_err().to_string().contains("tokens"));
    let id = lm.params.find("backbone.layers.3.mixer.in_proj.weight").unwrap();
    lm.params.get_mut(id).value.f32_mut()[128 * 64] = f32::NAN;
    let (tokens, segments) = tokens_and_segments();
    let mut calibrator = Calibrator::new(&lm);
    calibrator.add(&tokens, &segments).unwrap();
    assert!(calibrator.finish().unwrap_err().to_string().contains("layer 3"));
}
