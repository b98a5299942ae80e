//! The plot area of a chart, its axes and grid.

use super::scale::Scale;
use super::svg::Svg;

/// Natural width of every panel in CSS pixels: what a telephone shows without scaling.
pub(super) const WIDTH: f64 = 360.0;

/// The plot area: `[left, top]` to `[right, bottom]`.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// With room for tick labels at the left and below in a panel of `height`.
    pub(super) fn new(height: f64) -> Frame {
        Frame { left: 38.0, top: 22.0, right: WIDTH - 12.0, bottom: height - 32.0 }
    }

    pub(super) fn x(&self) -> [f64; 2] {
        [self.left, self.right]
    }

    /// Upwards.
    pub(super) fn y(&self) -> [f64; 2] {
        [self.bottom, self.top]
    }

    /// Grid lines across, tick labels, the axis below, and what the axes are.
    pub(super) fn axes(&self, svg: &mut Svg, x: (&Scale, &str), y: (&Scale, &str)) {
        for (at, label) in y.0.ticks() {
            svg.line([self.left, at, self.right, at], "grid");
            svg.text([self.left - 6.0, at + 3.5], "tick end", &label);
        }
        self.below(svg, x);
        let scale = if y.0.is_log() { " (log)" } else { "" };
        svg.text([0.0, 11.0], "axis", &format!("{}{scale}", y.1));
    }

    /// The axis below alone.
    pub(super) fn below(&self, svg: &mut Svg, x: (&Scale, &str)) {
        svg.line([self.left, self.bottom, self.right, self.bottom], "base");
        for (at, label) in x.0.ticks() {
            svg.line([at, self.bottom, at, self.bottom + 4.0], "base");
            svg.text([at, self.bottom + 15.0], "tick mid", &label);
        }
        svg.text([self.right, self.bottom + 29.0], "axis end", x.1);
    }
}
