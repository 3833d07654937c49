//! Curves: how a number depends on another one, with a line for each system, as JSON in a result and as an SVG picture.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use crate::{plot::colour, report::short};

const WIDTH: f64 = 720.0;
const PANEL_HEIGHT: f64 = 240.0;
/// The space above a panel for its title, and below it for the numbers of its scale.
const MARGINS: f64 = 60.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 170.0;

/// A panel of curves.
#[derive(Debug, Clone)]
pub(crate) struct Curves {
    /// What it shows.
    pub(crate) title: String,
    /// What goes from left to right, with its unit.
    pub(crate) x: &'static str,
    /// What goes upwards, with its unit.
    pub(crate) y: &'static str,
    /// Whether the scale from left to right is logarithmic, and the one upwards.
    pub(crate) is_log: (bool, bool),
    /// The lines, each with a name and points in the order of x.
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Curves {
    /// Returns the panel as a result states it.
    pub(crate) fn json(&self) -> Json {
        let lines = self.lines.iter().map(|(name, points)| (name.clone(), json!(points)));
        let lines: Map<String, Json> = lines.collect();
        json!({ "title": self.title, "x": self.x, "y": self.y, "lines": lines })
    }
}

/// Draws panels, one below the other.
pub(crate) fn picture(title: &str, panels: &[Curves]) -> String {
    let height = 30.0 + panels.len() as f64 * (PANEL_HEIGHT + MARGINS);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n<text x=\"10\" y=\"20\" font-size=\"16\">{title}</text>\n"
    );
    for (panel, number) in panels.iter().zip(0_u32..) {
        draw(&mut text, panel, 30.0 + f64::from(number) * (PANEL_HEIGHT + MARGINS));
    }
    text.push_str("</svg>\n");
    text
}

/// A scale from 0 to 1 over some values.
pub(crate) struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Scale {
    pub(crate) fn over(values: impl Iterator<Item = f64>, is_log: bool) -> Self {
        let (mut low, mut high) = (f64::MAX, f64::MIN);
        for value in values.filter(|value| !is_log || *value > 0.0) {
            let at = if is_log { logarithm(value) } else { value };
            (low, high) = (low.min(at), high.max(at));
        }
        if is_log {
            (low, high) = (low.floor(), high.ceil());
        } else {
            low = low.min(0.0);
        }
        if low >= high {
            (low, high) = if low > high { (0.0, 1.0) } else { (low, low + 1.0) };
        }
        Self { low, high, is_log }
    }

    pub(crate) fn place(&self, value: f64) -> f64 {
        let at = if self.is_log { logarithm(value.max(1e-9)) } else { value };
        ((at - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Returns the values that are marked: powers of ten, or quarters of the scale.
    pub(crate) fn marks(&self) -> Vec<f64> {
        let Self { low, high, is_log } = self;
        let steps = 0..=20_u32;
        match is_log {
            true => {
                let powers = steps.map(|step| low + f64::from(step));
                powers.take_while(|power| power <= high).map(power_of_ten).collect()
            }
            false => {
                let step = (high - low) / 4.0;
                steps.take(5).map(|mark| low + step * f64::from(mark)).collect()
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a picture need not have the same bits everywhere")]
fn logarithm(value: f64) -> f64 {
    value.log10()
}

#[expect(clippy::disallowed_methods, reason = "a picture need not have the same bits everywhere")]
fn power_of_ten(power: f64) -> f64 {
    10_f64.powf(power)
}

fn draw(text: &mut String, panel: &Curves, top: f64) {
    let points = || panel.lines.iter().flat_map(|(_, points)| points);
    let across = Scale::over(points().map(|(x, _)| *x), panel.is_log.0);
    let upwards = Scale::over(points().map(|(_, y)| *y), panel.is_log.1);
    let (first, bottom) = (top + 24.0, top + PANEL_HEIGHT);
    let x = |value: f64| LEFT + across.place(value) * (RIGHT - LEFT);
    let y = |value: f64| bottom - upwards.place(value) * (bottom - first);
    let Curves { title, x: of_x, y: of_y, .. } = panel;
    let mut add = |line: String| writeln!(text, "{line}").expect("a string takes everything");
    add(format!(
        "<text x=\"10\" y=\"{:.1}\" font-size=\"14\">{title}: {of_y} by {of_x}</text>",
        top + 12.0
    ));
    for mark in upwards.marks() {
        let at = y(mark);
        add(format!(
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            short(mark)
        ));
    }
    for mark in across.marks() {
        let (at, label) = (x(mark), short(mark));
        add(format!(
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 16.0
        ));
    }
    for (number, (name, points)) in panel.lines.iter().enumerate() {
        let corners = points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1)));
        let (corners, colour) = (corners.collect::<Vec<_>>().join(" "), colour(name, number));
        add(format!(
            "<polyline points=\"{corners}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            RIGHT + 8.0,
            first + 14.0 * number as f64 + 8.0
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::{Curves, picture};

    #[test]
    fn panels_are_drawn_with_their_lines() {
        let lines = vec![
            ("lockstep".to_owned(), vec![(1.0, 0.5), (1_000.0, 1.0)]),
            ("other".to_owned(), vec![(10.0, 0.25)]),
        ];
        let (x, y) = ("µs", "part");
        let panel = Curves { title: "A".to_owned(), x, y, is_log: (true, false), lines };
        let stated = panel.json();
        assert_eq!(stated["lines"]["other"][0][1], 0.25);
        let drawn = picture("M17", &[panel.clone(), panel]);
        assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n"));
        assert_eq!(drawn.matches("<polyline").count(), 4);
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
    }
}
