//! Bars and sparklines as SVG: a strict policy allows no style attributes, but attributes of
//! shapes.

use maud::{Markup, html};

/// A part of a stacked bar.
pub(crate) struct Share {
    /// Class of the part, which has its color.
    pub class: &'static str,
    /// Its name in words.
    pub label: &'static str,
    /// Its size.
    pub units: u64,
}

/// A bar of shares of `total`, with a description for readers who do not see it.
pub(crate) fn bar(shares: &[Share], total: u64) -> Markup {
    let sum: u64 = shares.iter().map(|share| share.units).sum();
    let total = total.max(sum).max(1);
    let mut x = 0.0;
    let rects: Vec<_> = shares
        .iter()
        .map(|share| {
            let width = share.units as f64 / total as f64 * 1000.0;
            let rect = (share, x, width);
            x += width;
            rect
        })
        .collect();
    html! {
        svg.bar viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=(label(shares)) {
            @for (share, x, width) in rects {
                rect class=(share.class) x=(format!("{x:.1}")) width=(format!("{width:.1}")) y="0" height="10" {}
            }
        }
    }
}

fn label(shares: &[Share]) -> String {
    let parts = shares
        .iter()
        .map(|share| format!("{} {}", share.units, share.label));
    parts.collect::<Vec<_>>().join(", ")
}

/// The names of the parts, with their colors and sizes.
pub(crate) fn legend(shares: &[Share]) -> Markup {
    html! {
        ul.legend {
            @for share in shares {
                li { span class={ "key " (share.class) } aria-hidden="true" {} (share.label) " " b { (crate::text::number(share.units)) } }
            }
        }
    }
}

/// One column for each value, the latest at the right.
pub(crate) fn sparkline(values: &[f64], columns: usize) -> Markup {
    let shown = &values[values.len().saturating_sub(columns)..];
    let highest = shown.iter().copied().fold(1.0, f64::max);
    let first = columns - shown.len();
    html! {
        svg.spark viewBox=(format!("0 0 {columns} 20")) preserveAspectRatio="none" aria-hidden="true" {
            @for (index, value) in shown.iter().enumerate() {
                @let height = value / highest * 20.0;
                rect x=(first + index) width="0.8" y=(format!("{:.1}", 20.0 - height)) height=(format!("{height:.1}")) {}
            }
        }
    }
}

/// A share of a whole as one bar, for a row of a table.
pub(crate) fn part(class: &str, value: u64, whole: u64) -> Markup {
    let width = value.min(whole) as f64 / whole.max(1) as f64 * 1000.0;
    html! {
        svg.bar viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
            rect class=(class) width=(format!("{width:.1}")) height="10" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Share, bar, sparkline};

    #[test]
    fn a_bar_never_exceeds_its_width() {
        let share = |units| Share {
            class: "held",
            label: "held",
            units,
        };
        let drawn = bar(&[share(30), share(90)], 100).into_string();
        assert!(drawn.contains(r#"x="250.0" width="750.0""#), "{drawn}");
        assert!(bar(&[share(0)], 0).into_string().contains("0 held"));
    }

    #[test]
    fn a_sparkline_keeps_the_latest_values() {
        let drawn = sparkline(&[9.0, 1.0, 2.0], 2).into_string();
        assert_eq!(drawn.matches("<rect").count(), 2);
        assert!(
            drawn.contains(r#"height="20.0""#) && drawn.contains(r#"height="10.0""#),
            "{drawn}"
        );
    }
}
