//! A result as an SVG picture: bars of the systems, and a line for each system in each sweep.
//!
//! The vertical scale is logarithmic, since peers differ by orders of magnitude.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use crate::{
    curves::Scale,
    report::{BASELINE, LOCKSTEP, short},
};

const WIDTH: f64 = 720.0;
const BAR_HEIGHT: f64 = 20.0;
const LABEL_WIDTH: f64 = 150.0;
const PANEL_HEIGHT: f64 = 260.0;

/// Colours of systems that are neither Lockstep nor the speed of light, in turn.
const COLOURS: [&str; 6] = ["#4e79a7", "#f28e2b", "#76b7b2", "#59a14f", "#b07aa1", "#9c755f"];

/// Draws a result object.
pub(crate) fn svg(result: &Json) -> String {
    let title = result["workload"].as_str().unwrap_or_default();
    let empty = Map::new();
    let systems = result["systems"].as_object().unwrap_or(&empty);
    let sweeps = result["sweeps"].as_object().unwrap_or(&empty);
    let (body, bars_end) = bars(systems, measure_of(systems));
    let mut text = body;
    let mut top = bars_end + 20.0;
    for (name, points) in sweeps {
        let points = points.as_array().map(Vec::as_slice).unwrap_or_default();
        if points.len() > 1 {
            text.push_str(&lines(name, points, top));
            top += PANEL_HEIGHT + 40.0;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n<text x=\"10\" y=\"20\" font-size=\"16\">{title}: {}</text>\n{text}</svg>\n",
        caption(measure_of(systems))
    )
}

/// Returns the name of the number that is drawn: memory where nothing was timed.
fn measure_of(systems: &Map<String, Json>) -> &'static str {
    let is_timed = systems.values().any(|system| system["p50_us"].is_number());
    if is_timed { "p50_us" } else { "bytes_per_row" }
}

fn caption(measure: &str) -> &'static str {
    match measure {
        "p50_us" => "p50 and p99 in µs, one client thread",
        _ => "bytes per row",
    }
}

/// Returns the colour of a system's line.
pub(crate) fn colour(name: &str, place: usize) -> &'static str {
    match name {
        LOCKSTEP => "#e15759",
        BASELINE => "#bab0ac",
        _ => COLOURS[place % COLOURS.len()],
    }
}

fn bars(systems: &Map<String, Json>, measure: &str) -> (String, f64) {
    let number = |system: &Json, name: &str| system[name].as_f64();
    let all =
        systems.values().flat_map(|system| [number(system, measure), number(system, "p99_us")]);
    let scale = Scale::over(all.flatten(), true);
    let width = WIDTH - LABEL_WIDTH - 90.0;
    let mut text = String::new();
    let mut y = 40.0;
    for (place, (name, system)) in systems.iter().enumerate() {
        let Some(value) = number(system, measure) else { continue };
        let length = (scale.place(value) * width).max(1.0);
        let middle = y + BAR_HEIGHT * 0.7;
        let mut tail_x = LABEL_WIDTH + length;
        writeln!(
            text,
            "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"{LABEL_WIDTH}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{}\" fill=\"{}\"/>",
            LABEL_WIDTH - 6.0,
            BAR_HEIGHT - 4.0,
            colour(name, place)
        )
        .expect("a string takes everything");
        if let Some(tail) = number(system, "p99_us") {
            tail_x = LABEL_WIDTH + (scale.place(tail) * width).max(length);
            let line_y = y + BAR_HEIGHT / 2.0 - 2.0;
            writeln!(
                text,
                "<line x1=\"{:.1}\" x2=\"{tail_x:.1}\" y1=\"{line_y:.1}\" y2=\"{line_y:.1}\" \
                 stroke=\"#333\"/>",
                LABEL_WIDTH + length
            )
            .expect("a string takes everything");
        }
        writeln!(text, "<text x=\"{:.1}\" y=\"{middle:.1}\">{}</text>", tail_x + 6.0, short(value))
            .expect("a string takes everything");
        y += BAR_HEIGHT;
    }
    (text, y)
}

/// Draws one panel: the points of a sweep from left to right, at equal distances.
fn lines(name: &str, points: &[Json], top: f64) -> String {
    let measure = points[0]["systems"].as_object().map_or("p50_us", measure_of);
    let value = |point: &Json, system: &str| point["systems"][system][measure].as_f64();
    let names =
        points[0]["systems"].as_object().map(|systems| systems.keys()).into_iter().flatten();
    let names: Vec<&String> = names.collect();
    let all = points.iter().flat_map(|point| names.iter().filter_map(|name| value(point, name)));
    let scale = Scale::over(all, true);
    let (left, right) = (70.0, WIDTH - 160.0);
    let x = |place: usize| left + (right - left) * (place as f64 + 0.5) / points.len() as f64;
    let y = |value: f64| top + PANEL_HEIGHT - scale.place(value) * (PANEL_HEIGHT - 30.0);
    let mut text =
        format!("<text x=\"10\" y=\"{:.1}\" font-size=\"14\">{name}</text>\n", top + 10.0);
    for mark in scale.marks() {
        let (at, label) = (y(mark), short(mark));
        writeln!(
            text,
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 6.0,
            at + 4.0
        )
        .expect("a string takes everything");
    }
    for (place, label) in point_labels(points).iter().enumerate() {
        let at = top + PANEL_HEIGHT + 16.0;
        writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{at:.1}\" text-anchor=\"middle\">{label}</text>",
            x(place)
        )
        .expect("a string takes everything");
    }
    for (number, system) in names.iter().enumerate() {
        let corners: Vec<(f64, f64)> = points
            .iter()
            .enumerate()
            .filter_map(|(place, point)| Some((x(place), y(value(point, system)?))))
            .collect();
        let path: Vec<String> = corners.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let colour = colour(system, number);
        writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        )
        .expect("a string takes everything");
        if let Some((x, y)) = corners.last() {
            let (x, y) = (x + 8.0, y + 4.0);
            writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{system}</text>")
                .expect("a string takes everything");
        }
    }
    text
}

/// Returns for each point of a sweep the parameters that vary in it.
pub(crate) fn point_labels(points: &[Json]) -> Vec<String> {
    let empty = Map::new();
    let params = |point: &Json| point["params"].as_object().unwrap_or(&empty).clone();
    let first = points.first().map(params).unwrap_or_default();
    let varied: Vec<String> = first
        .iter()
        .filter(|(_, value)| !value.is_object())
        .filter(|(name, value)| {
            points.iter().any(|point| point["params"][name.as_str()] != **value)
        })
        .map(|(name, _)| name.clone())
        .collect();
    let label = |point: &Json| {
        let values = varied.iter().map(|name| point["params"][name].to_string().replace('"', ""));
        values.collect::<Vec<String>>().join(" / ")
    };
    points.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{point_labels, svg};

    #[test]
    fn a_result_is_drawn_with_its_sweeps() {
        let point = |windows: u32, p50: f64| {
            let systems = json!({ "lockstep": { "p50_us": p50 }, "duckdb": { "p50_us": 4_000.0 } });
            json!({ "params": { "windows": windows, "joins": 2 }, "systems": systems })
        };
        let points = [point(1, 10.0), point(5, 90.0)];
        assert_eq!(point_labels(&points), ["1", "5"]);
        let result = json!({
            "workload": "M1", "systems": points[0]["systems"], "sweeps": { "windows": points },
        });
        let picture = svg(&result);
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert_eq!(picture.matches("<rect").count(), 3);
    }
}
