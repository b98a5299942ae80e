//! Writing SVG: shapes with classes, whose colours the page's style sheet gives for light, dark and print.

use std::fmt::Write;

/// Text or a quoted attribute that means nothing but itself. Control characters, which XML forbids, become U+FFFD.
pub(in crate::report) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\r' => {}
            c if c.is_control() && !"\n\t".contains(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A coordinate: two decimals without trailing zeros. What is not finite, which no caller should pass, is 0.
pub(super) fn at(value: f64) -> String {
    let text = format!("{:.2}", if value.is_finite() { value } else { 0.0 });
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A picture in the making; lengths in CSS pixels at its natural size.
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Svg {
        Svg { width, height, body: String::new() }
    }

    fn push(&mut self, element: &str, attributes: &str, class: &str, title: Option<&str>) {
        let _ = match title {
            None => write!(self.body, "<{element} class=\"{class}\"{attributes}/>"),
            Some(title) => {
                write!(
                    self.body,
                    "<{element} class=\"{class}\"{attributes}><title>{}</title></{element}>",
                    escape(title)
                )
            }
        };
    }

    /// `[x, y, width, height]`; nothing where it would have no area.
    pub(super) fn rect(&mut self, [x, y, w, h]: [f64; 4], class: &str, title: Option<&str>) {
        if w > 0.0 && h > 0.0 {
            let attributes = format!(" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", at(x), at(y), at(w), at(h));
            self.push("rect", &attributes, class, title);
        }
    }

    pub(super) fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], class: &str) {
        let attributes = format!(" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"", at(x1), at(y1), at(x2), at(y2));
        self.push("line", &attributes, class, None);
    }

    pub(super) fn circle(&mut self, [x, y]: [f64; 2], radius: f64, class: &str, title: Option<&str>) {
        self.push("circle", &format!(" cx=\"{}\" cy=\"{}\" r=\"{}\"", at(x), at(y), at(radius)), class, title);
    }

    pub(super) fn path(&mut self, d: &str, class: &str, title: Option<&str>) {
        if !d.is_empty() {
            self.push("path", &format!(" d=\"{d}\""), class, title);
        }
    }

    /// A path whose fill has an opacity of its own.
    pub(super) fn shade(&mut self, d: &str, class: &str, opacity: f64, title: Option<&str>) {
        if !d.is_empty() {
            self.push("path", &format!(" d=\"{d}\" fill-opacity=\"{}\"", at(opacity)), class, title);
        }
    }

    pub(super) fn diamond(&mut self, [x, y]: [f64; 2], radius: f64, class: &str, title: Option<&str>) {
        let d = format!("M{} {}l{r} {r}l-{r} {r}l-{r} -{r}z", at(x), at(y - radius), r = at(radius));
        self.path(&d, class, title);
    }

    /// The classes "mid" and "end" anchor it there.
    pub(super) fn text(&mut self, [x, y]: [f64; 2], class: &str, text: &str) {
        let (x, y) = (at(x), at(y));
        let _ = write!(self.body, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(text));
    }

    /// As [`Svg::finish`], for a picture without text that its place may stretch.
    pub(super) fn finish_stretched(self, label: &str) -> String {
        self.finish(label).replacen("<svg ", "<svg preserveAspectRatio=\"none\" ", 1)
    }

    /// The picture as a file of its own, which has `style` in it.
    pub(super) fn finish_alone(mut self, label: &str, style: &str) -> String {
        self.body.insert_str(0, &format!("<style>{}</style>", style.replace('<', "&lt;")));
        self.finish(label).replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1) + "\n"
    }

    /// The picture as one image that `label` describes in words.
    pub(super) fn finish(self, label: &str) -> String {
        let (w, h) = (at(self.width), at(self.height));
        let label = escape(label);
        format!(
            "<svg viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\" aria-label=\"{label}\">{}</svg>",
            self.body
        )
    }
}

/// The path through `points`, broken where a point is missing. A point alone becomes a dot (with round caps).
pub(super) fn polyline(points: impl IntoIterator<Item = Option<[f64; 2]>>) -> String {
    let mut d = String::new();
    let mut pen_down = false;
    let mut alone = false;
    for point in points {
        match point {
            Some([x, y]) => {
                let _ = write!(d, "{}{} {}", if pen_down { 'L' } else { 'M' }, at(x), at(y));
                alone = !pen_down;
                pen_down = true;
            }
            None => {
                if alone {
                    d.push_str("h0");
                }
                (pen_down, alone) = (false, false);
            }
        }
    }
    if alone {
        d.push_str("h0");
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(escape("<b a='1'>\"&\u{1b}"), "&lt;b a=&#39;1&#39;&gt;&quot;&amp;\u{fffd}");
    }

    #[test]
    fn a_path_breaks_at_a_gap_and_shows_a_point_alone() {
        let points = [Some([0.0, 1.0]), Some([2.0, 3.5]), None, Some([4.0, 5.0])];
        assert_eq!(polyline(points), "M0 1L2 3.5M4 5h0");
        assert_eq!(polyline([None, None]), "");
    }
}
