//! A study as a picture: each arm's seeds and their mean, limit by limit.

use super::summary::{ArmResult, SeedResult, ShareResult, StudyResult};
use super::table::{arm_name, limit_text};
use super::unit::Arm;
use crate::report::{DotGroup, DotPanel, DotRow, dots};

/// More characters do not fit in a line of the picture.
const LINE: usize = 64;

/// An SVG file.
pub fn svg(result: &StudyResult) -> String {
    let kl = "nats per token".to_owned();
    let mut panels = vec![
        panel(result, "Held-out KL after recovery", kl.clone(), |seed| Some(seed.best().held_out)),
        panel(result, "KD loss, last 25 steps of recovery", kl, |seed| Some(seed.best().recovery)),
        panel(result, "Task mean", "%".into(), |seed| seed.best().task_mean.map(|mean| 100.0 * mean)),
    ];
    if let Some(mean) = result.parent_task_mean {
        panels[2].rule = Some((100.0 * mean, "the parent".into()));
    }
    panels.retain(|panel| panel.groups.iter().any(|group| !group.rows.is_empty()));
    let label =
        "Losses and task means of each arm within each share of the limits, a dot for every seed and a bar at the mean";
    dots(label, &panels)
}

fn panel(result: &StudyResult, title: &str, axis: String, value: fn(&SeedResult) -> Option<f64>) -> DotPanel {
    let groups = result.shares.iter().map(|share| group(share, value)).collect();
    DotPanel { title: title.into(), axis, rule: None, groups }
}

fn group(share: &ShareResult, value: fn(&SeedResult) -> Option<f64>) -> DotGroup {
    let limits: Vec<String> = share.limits.iter().map(limit_text).collect();
    let note = limits.join(", ");
    let fits = note.chars().count() <= LINE;
    DotGroup {
        name: format!("share {}", share.share),
        note: if fits { note } else { String::new() },
        rows: share.arms.iter().filter_map(|arm| row(arm, value)).collect(),
    }
}

/// `None` where nothing is known of a seed.
fn row(arm: &ArmResult, value: fn(&SeedResult) -> Option<f64>) -> Option<DotRow> {
    let dots: Vec<f64> = arm.seeds.iter().map(value).collect::<Option<_>>()?;
    let mean = dots.iter().sum::<f64>() / dots.len() as f64;
    Some(DotRow { name: arm_name(arm), first: arm.arm == Arm::Search, dots, mean })
}
