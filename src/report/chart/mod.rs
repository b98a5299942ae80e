//! The page's pictures: each function takes numbers and gives an `<svg>`. Panels are 360 CSS pixels wide by nature, so that
//! their text has its size on a telephone; wider screens put them side by side. Anything that is not finite is left out.

mod bars;
mod dots;
mod frame;
mod inline;
mod layer;
mod line;
mod scale;
mod scatter;
mod stack;
mod svg;

pub(super) use bars::{Bar, BudgetBars};
pub(crate) use dots::{DotGroup, DotPanel, DotRow, dots};
pub(super) use inline::{area_key, before_after, limit_use, line_key, point_key, scores, share_bar};
pub(super) use layer::{Kind, LayerColumn, Part, Width, strip};
pub(super) use line::{LineChart, Mark, Series, Smoothing};
pub(super) use scatter::{ErrorRow, Point, diagonal, errors};
pub(super) use stack::Stack;
pub(super) use svg::escape;
