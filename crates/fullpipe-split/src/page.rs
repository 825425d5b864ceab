//! A report as the body of an HTML page: markup without scripts, with the contents of the terminal
//! report and charts of the intervals.

use crate::rows::{ARM, Row, arms};
use crate::{Comparison, Report};
use fullpipe_presentation::picture::escape_html;
use std::fmt::Write;

/// Renders the body of the page.
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    let plan = &report.plan;
    let _ = write!(out, "<p class=\"verdict\">{}</p>", escape_html(&report.verdict));
    list(&mut out, "troubles", "Limitations", &report.warnings);
    table_of_arms(&mut out, report);
    if !report.effects.is_empty() {
        let _ = write!(
            out,
            "<h2>Compared with {}</h2><p class=\"hint\">Always-valid 95 % confidence intervals.</p>",
            escape_html(&plan.control)
        );
        table(&mut out, &Row::all(&report.effects), &plan.control);
    }
    if let Some(joined) = report.joined.as_ref().filter(|joined| !joined.figures.is_empty()) {
        let _ = write!(
            out,
            "<h2>From the joined log</h2><p class=\"hint\">{} lines, {} connections of the experiment. \
             Whether more is better depends on the application.</p>",
            joined.rows, joined.connections
        );
        for figure in &joined.figures {
            if figure.effects.is_empty() {
                let (name, values) = (escape_html(&figure.name), figure.values);
                let _ = write!(out, "<p>{name}: not enough data ({values} values).</p>");
            }
            table(&mut out, &Row::from_joined(figure), &plan.control);
        }
    }
    for group in &report.groups {
        let _ = write!(
            out,
            "<h2>{}</h2><p class=\"hint\">{} connections; simultaneous 95 % intervals for all groups.</p>",
            escape_html(&group.name),
            group.connections
        );
        if group.effects.is_empty() {
            out += "<p>Not enough data.</p>";
        }
        table(&mut out, &Row::all(&group.effects), &plan.control);
    }
    for simulated in &report.simulated {
        let _ = write!(
            out,
            "<h2>Bias at shared bottlenecks</h2><p>{} compared with {}, simulated for {}: result of an \
             experiment for each share; a full roll-out gives ×{:.2}.</p><div class=\"scroll\"><table>\
             <thead><tr><th scope=\"col\">share of {0}</th>\
             <th scope=\"col\">goodput ratio of the experiment</th><th scope=\"col\">bias</th></tr>\
             </thead><tbody>",
            escape_html(&simulated.arm),
            escape_html(&plan.control),
            escape_html(&simulated.path),
            simulated.bias.goodput_ratio
        );
        for point in &simulated.bias.points {
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{:.0} %</th><td>×{:.2}</td><td>×{:.2}</td></tr>",
                point.share * 100.0,
                point.goodput_ratio,
                point.bias
            );
        }
        out += "</tbody></table></div>";
    }
    list(&mut out, "found", "Findings", &report.findings);
    list(&mut out, "events", "Events", &report.events);
    plan_and_checks(&mut out, report);
    out
}

fn list(out: &mut String, class: &str, title: &str, all: &[String]) {
    if all.is_empty() {
        return;
    }
    let _ = write!(out, "<h2>{title}</h2><ul class=\"{class}\">");
    for one in all {
        let _ = write!(out, "<li>{}</li>", escape_html(one));
    }
    out.push_str("</ul>");
}

fn head(out: &mut String, columns: &[&str]) {
    out.push_str("<div class=\"scroll\"><table class=\"summary\"><thead><tr>");
    for column in columns {
        let _ = write!(out, "<th scope=\"col\">{column}</th>");
    }
    out.push_str("</tr></thead><tbody>");
}

fn table_of_arms(out: &mut String, report: &Report) {
    out.push_str("<h2>Arms</h2>");
    head(out, &[&["arm"][..], &ARM].concat());
    for (name, cells) in arms(report) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape_html(&name));
        cells.iter().for_each(|cell| {
            let _ = write!(out, "<td>{}</td>", escape_html(cell));
        });
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

/// Estimate, lower and upper bound of a row, on a common scale.
fn chart_values(row: &Row<'_>) -> [f64; 3] {
    // One percentage point is drawn like ten percent.
    let scale = if row.comparison == Comparison::Ratio { 1.0 } else { 10.0 };
    let estimate = row.estimate;
    [estimate.difference, estimate.low.unwrap_or(f64::NEG_INFINITY), estimate.high.unwrap_or(f64::INFINITY)]
        .map(|x| x * scale)
}

/// A table for each arm, all with one scale; results come before levels, for narrow screens.
fn table(out: &mut String, rows: &[Row<'_>], control: &str) {
    // Values beyond the scale end at its edge.
    let widest = rows.iter().flat_map(chart_values).filter(|x| x.is_finite()).map(f64::abs);
    let max = widest.fold(0.05_f64, f64::max).min(2.0);
    let control = escape_html(control);
    for arm_rows in rows.chunk_by(|a, b| a.estimate.arm == b.estimate.arm) {
        let arm = escape_html(&arm_rows[0].estimate.arm);
        head(out, &[&*arm, "difference", "interval", "", "95 %", &arm, &control]);
        for row in arm_rows {
            let verdict = row.verdict();
            let class = match verdict {
                "better" => " class=\"good\"",
                "worse" => " class=\"bad\"",
                _ => "",
            };
            let [low, high] = row.interval();
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td{class}>{}</td><td{class}>{verdict}</td>\
                 <td>{} … {}</td>\
                 <td>{}</td><td>{}</td></tr>",
                escape_html(&row.name),
                row.difference(),
                bar(chart_values(row), max),
                low,
                high,
                escape_html(&row.estimate.level),
                escape_html(&row.estimate.control_level),
            );
        }
        out.push_str("</tbody></table></div>");
    }
}

/// An interval with its estimate, on a scale centred on zero.
fn bar([estimate, low, high]: [f64; 3], max: f64) -> String {
    const HALF: f64 = 55.0;
    let x = |value: f64| HALF * (1.0 + (value / max).clamp(-1.0, 1.0)) + 5.0;
    format!(
        "<svg width=\"120\" height=\"16\" viewBox=\"0 0 120 16\" role=\"img\" aria-label=\"interval\">\
         <line x1=\"60\" x2=\"60\" y1=\"0\" y2=\"16\" style=\"stroke:var(--faint);stroke-width:1\"/>\
         <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"8\" y2=\"8\" style=\"stroke:currentColor;stroke-width:3\"/>\
         <circle cx=\"{:.1}\" cy=\"8\" r=\"4\" style=\"fill:currentColor\"/></svg>",
        x(low),
        x(high),
        x(estimate)
    )
}

/// The plan and the checks.
fn plan_and_checks(out: &mut String, report: &Report) {
    let plan = &report.plan;
    let shares: Vec<String> =
        plan.arms.all().iter().map(|arm| format!("{} {}", arm.label, arm.share)).collect();
    let mut facts = vec![
        ("arms", shares.join(", ")),
        ("assignment", plan.by.to_string()),
        ("seed", plan.seed.to_string()),
        ("control group", plan.cgroup.clone()),
        ("filter", plan.condition.clone()),
        ("transfers", format!("at least {}", plan.min_transfer)),
        ("guard", plan.guard.to_string()),
        ("sample ratio", format!("p = {:.3}", report.sample_ratio_p)),
        ("A/A test of the control", report.aa_p.map_or("–".to_owned(), |p| format!("p = {p:.3}"))),
        ("overlap of arms", report.overlap_share.map_or("–".to_owned(), |o| format!("{:.1} %", o * 100.0))),
    ];
    facts.retain(|(_, text)| !text.is_empty());
    out.push_str("<h2>Plan and checks</h2><dl>");
    for (name, text) in facts {
        let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", escape_html(&text));
    }
    out.push_str("</dl>");
}
