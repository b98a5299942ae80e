//! The model card of an export.

use std::fmt::Write as _;
use std::path::Path;

use super::{ERRORS, ExportReport};
use crate::model::Config;
use crate::report::{FrontMatter, base_model, bytes, count, inherited, loading, plain};
use crate::{Result, files};

/// What was done to the model in `model`, and below it that model's own card where it has one.
pub fn card(model: &Path, config: &Config, report: &ExportReport) -> Result<String> {
    let path = model.join("README.md");
    let before = if path.is_file() { files::read_text(&path)? } else { String::new() };
    let (license, body) = inherited(&before);
    // Not the repository that its configuration may name: that is the parent's.
    let folder = base_model(model, &serde_json::Map::new());
    // A student's folder is named by what it is in its run; its card knows of what.
    let is_student = matches!(folder.as_str(), "student" | "recovered");
    let titled = body.lines().find_map(|line| line.strip_prefix("# ")).filter(|_| is_student);
    let name = plain(titled.unwrap_or(&folder));
    let json = config.to_json()?;
    let model_type = json.get("model_type").and_then(|kind| kind.as_str()).unwrap_or("nemotron_h");
    let mut tags = vec!["autocompress".to_owned(), model_type.to_owned()];
    let is_used = |format: &&str| report.components.iter().any(|c| c.format == *format);
    let formats: Vec<&str> = ["fp8", "nvfp4"].into_iter().filter(is_used).collect();
    let quantised = !formats.is_empty();
    tags.extend(formats.into_iter().map(String::from));
    tags.extend(quantised.then(|| "modelopt".to_owned()));
    let relation = quantised.then_some("quantized");
    let quoted = |line: &str| line.trim().trim_matches('"').to_owned();
    let of_student = before.lines().find_map(|line| line.strip_prefix("base_model:")).filter(|_| is_student);
    let front = FrontMatter {
        base_model: of_student.map_or(folder, quoted),
        relation,
        library: "vllm",
        tags,
        inherited: license,
    };
    let mut text = front.text();
    let _ = write!(
        text,
        "\n# {name}, exported\n\nThe weights of {name} in other formats: {} instead of {}.\n\n",
        bytes(report.bytes as f64),
        bytes(report.source_bytes as f64)
    );
    text.push_str("| component | format | tensors | values | bytes | ‖ΔW‖ / ‖W‖ | max \\|Δw\\| |\n");
    text.push_str("| --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
    for c in &report.components {
        let (parameters, size) = (count(c.parameters), bytes(c.bytes as f64));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {parameters} | {size} | {:.2e} | {:.2e} |",
            c.component, c.format, c.tensors, c.relative_error, c.largest_error
        );
    }
    let _ = write!(text, "\nEach tensor's error is in `{ERRORS}.csv`.\n");
    for kept in &report.kept {
        let _ = write!(text, "\n`{}` stays in {}: {}.\n", kept.tensor, kept.format, kept.because);
    }
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(text, "\nMade by autocompress {version}; no activations were calibrated.\n\n## Loading\n\n");
    text.push_str(&loading(model_type == "nemotron_h_puzzle", quantised));
    if !body.trim().is_empty() {
        let _ = write!(text, "\n## The card of {name}\n\n{}", deeper(body.trim_start()));
    }
    Ok(text)
}

/// Headings two levels down, outside code.
fn deeper(body: &str) -> String {
    let mut fence: Option<String> = None;
    let mut text = String::with_capacity(body.len() + 64);
    for line in body.lines() {
        let ticks: String = line.chars().take_while(|c| *c == '`').collect();
        match &fence {
            Some(open) if ticks.len() >= open.len() => fence = None,
            None if ticks.len() >= 3 => fence = Some(ticks),
            None if line.starts_with('#') => text.push_str("##"),
            _ => {}
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}
