//! Every element against its format's bound.

use std::collections::BTreeMap;
use std::path::Path;

use autocompress::cost::{Contract, Format};
use autocompress::export::{ExportOptions, ExportReport, all_linear, export};
use autocompress::model::checkpoint::DiskDtype;
use serde_json::json;

use crate::models::{Folder, edit, model, preset, tiny_parent};
use crate::reader::{Tensor, dequantise, e4m3, half_step_e2m1, half_step_e4m3, plain, read};

pub fn options(format: Format) -> ExportOptions {
    ExportOptions { precision: all_linear(format), max_shard_bytes: 1 << 30 }
}

/// Checks all weights of `out` against those of `model`; the numbers of quantised ones by format.
pub fn check(model: &Path, out: &Path, report: &ExportReport) -> BTreeMap<&'static str, usize> {
    let (before, after) = (read(model), read(out));
    let mut counts = BTreeMap::new();
    for (name, tensor) in &before {
        let was = plain(tensor);
        let Some(quantised) = dequantise(&after, name) else {
            check_plain(name, tensor, &after[name]);
            continue;
        };
        let is_fp8 = after[name].dtype == "F8_E4M3";
        *counts.entry(if is_fp8 { "fp8" } else { "nvfp4" }).or_insert(0) += 1;
        assert_eq!(was.len(), quantised.values.len(), "{name}");
        if is_fp8 {
            let scale = quantised.tensor_scale;
            for (i, (was, is)) in was.iter().zip(&quantised.values).enumerate() {
                let bound = half_step_e4m3(was / scale) * scale * (1.0 + 1e-6);
                assert!((was - is).abs() <= bound, "{name}[{i}]: {was} became {is}, bound {bound}");
            }
        } else {
            check_nvfp4(name, &was, &quantised.values, &quantised.units, quantised.tensor_scale);
        }
        check_report(name, &was, &quantised.values, report);
    }
    counts
}

/// The same numbers, or the nearest in bf16.
fn check_plain(name: &str, before: &Tensor, after: &Tensor) {
    assert_eq!(before.shape, after.shape, "{name}");
    if before.dtype == after.dtype {
        assert!(before.bytes == after.bytes, "{name}");
        return;
    }
    assert_eq!((before.dtype.as_str(), after.dtype.as_str()), ("F32", "BF16"), "{name}");
    for (was, is) in plain(before).iter().zip(plain(after)) {
        assert!((was - is).abs() <= was.abs() / 256.0, "{name}: {was} became {is}");
    }
}

/// Block scales are e4m3's nearest to amax / 6, in units of the tensor's scale; values are the nearest multiples.
fn check_nvfp4(name: &str, was: &[f64], is: &[f64], units: &[f64], of_tensor: f64) {
    for (i, (was, is)) in was.chunks_exact(16).zip(is.chunks_exact(16)).enumerate() {
        let unit = units[16 * i];
        let amax = was.iter().fold(0.0f64, |amax, x| amax.max(x.abs()));
        let wanted = amax / 6.0 / of_tensor;
        let off = (unit / of_tensor - wanted.min(448.0)).abs();
        assert!(off <= half_step_e4m3(wanted.min(447.9)) * (1.0 + 1e-6), "{name}, block {i}: scale off by {off}");
        for (was, is) in was.iter().zip(is) {
            if unit == 0.0 {
                assert!(*is == 0.0 && wanted <= 2f64.powi(-10) * (1.0 + 1e-6), "{name}, block {i}");
                continue;
            }
            // What is beyond 6 saturates: the block's scale was rounded down.
            let bound = (half_step_e2m1(was / unit) * unit).max(was.abs() - 6.0 * unit) * (1.0 + 1e-5);
            assert!((was - is).abs() <= bound, "{name}, block {i}: {was} became {is}, unit {unit}");
        }
    }
}

/// What is reported is what the bytes say.
fn check_report(name: &str, was: &[f64], is: &[f64], report: &ExportReport) {
    let reported = report.changed.iter().find(|tensor| tensor.tensor == name).unwrap_or_else(|| panic!("{name}"));
    let square = |x: f64| x * x;
    let errors: f64 = was.iter().zip(is).map(|(was, is)| square(was - is)).sum();
    let squares: f64 = was.iter().map(|was| square(*was)).sum();
    let relative = if squares > 0.0 { (errors / squares).sqrt() } else { 0.0 };
    assert!((reported.relative_error - relative).abs() <= 1e-5 * relative, "{name}: {relative} {reported:?}");
    let largest = was.iter().zip(is).map(|(was, is)| (was - is).abs()).fold(0.0, f64::max);
    let scale = was.iter().fold(0.0f64, |amax, x| amax.max(x.abs()));
    assert!((f64::from(reported.largest_error) - largest).abs() <= 1e-6 * scale, "{name}: {largest} {reported:?}");
}

#[test]
fn every_element_is_within_its_formats_bound() {
    let folder = Folder::new();
    // MoE experts of 40 have no whole blocks: NVFP4 leaves them alone, FP8 does not.
    for (name, keys) in [
        ("plain", json!({})),
        ("narrow", json!({ "moe_intermediate_size": 40, "moe_shared_expert_intermediate_size": 33 })),
        ("latent", json!({ "moe_latent_size": 16, "hidden_size": 80 })),
    ] {
        for (dtype, of) in [(DiskDtype::F32, "f32"), (DiskDtype::BF16, "bf16")] {
            let from = folder.save(&format!("{name}.{of}"), &model(keys.clone()), dtype);
            for format in [Format::Fp8, Format::Nvfp4] {
                let out = folder.path(&format!("{name}.{of}.{}", format.name()));
                let report = export(&from, &out, &options(format)).unwrap();
                let counts = check(&from, &out, &report);
                // 2 Mamba, 8 of experts, 2 shared, 4 attention, 2 MLP, head; latent 2 more.
                let all = 19 + if name == "latent" { 2 } else { 0 };
                let kept = report.kept.len();
                assert_eq!(counts[format.name()], all - kept, "{name} {of}: {:?}", report.kept);
                // Experts, which go together, and the shared expert's down projection.
                assert_eq!(kept, if name == "narrow" && format == Format::Nvfp4 { 9 } else { 0 }, "{name}");
            }
        }
    }
}

#[test]
fn the_tiny_parent_has_the_errors_of_its_formats() {
    let folder = Folder::new();
    for (format, low, high) in [(Format::Fp8, 0.015, 0.035), (Format::Nvfp4, 0.06, 0.12)] {
        let out = folder.path(format.name());
        let report = export(&tiny_parent(), &out, &options(format)).unwrap();
        check(&tiny_parent(), &out, &report);
        for c in report.components.iter().filter(|c| c.format == format.name()) {
            println!("{} {}: {:.4}", c.component, c.format, c.relative_error);
            assert!((low..high).contains(&c.relative_error), "{} {}: {}", c.component, c.format, c.relative_error);
        }
    }
}

/// A contract's formats, component by component: NVFP4, FP8 and bf16 in one checkpoint.
#[test]
fn a_contract_says_the_format_of_each_component() {
    let folder = Folder::new();
    let from = folder.save("model", &model(json!({})), DiskDtype::F32);
    let contract = Contract::from_file(&preset("contracts/rtx-5070.toml")).unwrap();
    let options = ExportOptions { precision: contract.precision, max_shard_bytes: 1 << 30 };
    let report = export(&from, &folder.path("out"), &options).unwrap();
    let counts = check(&from, &folder.path("out"), &report);
    assert_eq!((counts["fp8"], counts["nvfp4"]), (2, 13));
    let tensors = read(&folder.path("out"));
    for (name, dtype) in [
        ("backbone.embeddings.weight", "BF16"),
        ("lm_head.weight", "U8"),
        ("backbone.layers.0.mixer.in_proj.weight", "F8_E4M3"),
        ("backbone.layers.0.mixer.A_log", "F32"),
        ("backbone.layers.0.mixer.conv1d.weight", "F32"),
        ("backbone.layers.1.mixer.gate.weight", "F32"),
        ("backbone.layers.1.mixer.experts.3.down_proj.weight", "U8"),
        ("backbone.layers.1.mixer.shared_experts.up_proj.weight", "U8"),
        ("backbone.layers.2.mixer.q_proj.weight", "BF16"),
        ("backbone.layers.3.mixer.up_proj.weight", "U8"),
    ] {
        assert_eq!(tensors[name].dtype, dtype, "{name}");
    }
}

#[test]
fn outliers_zeros_and_tiny_values_keep_the_bound() {
    let folder = Folder::new();
    let mut lm = model(json!({}));
    let up = "backbone.layers.1.mixer.experts.up_proj.weight";
    // [4, 32, 48]. An outlier in expert 0, all of expert 1 zero, one block of expert 2 zero, expert 3 beyond f32's normals.
    edit(&mut lm, up, |values| {
        let (first, rest) = values.split_at_mut(32 * 48);
        (first[5], first[700]) = (3e5, -0.0);
        let (second, rest) = rest.split_at_mut(32 * 48);
        second.fill(0.0);
        let (third, fourth) = rest.split_at_mut(32 * 48);
        third[48..64].fill(0.0);
        third[64] = 1e-30;
        fourth.iter_mut().for_each(|value| *value = 1e-42);
    });
    // Magnitudes over 30 powers of two within one tensor.
    edit(&mut lm, "lm_head.weight", |values| {
        values.iter_mut().enumerate().for_each(|(i, value)| *value *= 2f32.powi(-(i as i32 / 16 % 30)));
    });
    let from = folder.save("model", &lm, DiskDtype::F32);
    for format in [Format::Fp8, Format::Nvfp4] {
        let out = folder.path(format.name());
        let report = export(&from, &out, &options(format)).unwrap();
        let name = |expert: usize| format!("backbone.layers.1.mixer.experts.{expert}.up_proj.weight");
        let tensors = read(&out);
        let scale = |expert| dequantise(&tensors, &name(expert)).unwrap().tensor_scale;
        assert_eq!([scale(1), scale(3)], [1.0, 1.0], "a tensor without normal numbers");
        assert!(dequantise(&tensors, &name(1)).unwrap().values.iter().all(|value| *value == 0.0));
        let outlier = dequantise(&tensors, &name(0)).unwrap();
        assert!((outlier.values[5] / 3e5 - 1.0).abs() < 1e-6, "the largest value is the format's largest");
        let error = |expert| report.changed.iter().find(|t| t.tensor == name(expert)).unwrap();
        assert!(error(0).relative_error < 1e-3 && error(1).relative_error == 0.0);
        if format == Format::Nvfp4 {
            // The values beside the outlier are below the smallest scale: they are gone, and it is told.
            let gone = outlier.units.chunks(16).filter(|units| units[0] == 0.0).count() as u64;
            assert!(gone > 90 && error(0).zeroed_blocks == gone, "{gone} {:?}", error(0));
            assert_eq!((error(1).zeroed_blocks, error(2).zeroed_blocks), (0, 0));
            let scales = &tensors["lm_head.weight_scale"];
            let smallest = scales.bytes.iter().map(|code| e4m3(*code)).fold(448.0, f64::min);
            assert!(smallest == 0.0 && scales.bytes.iter().any(|code| (1..8).contains(code)), "subnormal scales too");
        }
        let expert_3 = dequantise(&tensors, &name(3)).unwrap();
        assert!(expert_3.values.iter().all(|value| *value == 0.0));
        // Below the normal numbers the bound is the whole value.
        let mut lm_without = model(json!({}));
        edit(&mut lm_without, up, |values| {
            values.copy_from_slice(lm.params.get(lm.params.find(up).unwrap()).value.f32());
            values[3 * 32 * 48..].fill(0.0);
        });
        edit(&mut lm_without, "lm_head.weight", |values| {
            values.copy_from_slice(lm.params.get(lm.params.find("lm_head.weight").unwrap()).value.f32());
        });
        let (from, out) = (folder.save("normal", &lm_without, DiskDtype::F32), folder.path("normal.out"));
        let report = export(&from, &out, &options(format)).unwrap();
        check(&from, &out, &report);
    }
}
