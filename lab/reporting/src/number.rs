//! Numbers as text.

/// Formats three significant digits of a small number, and all digits of a large one.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "-".to_owned(),
        _ if size == 0.0 || size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.5}"),
    }
}

/// Formats a whole number that is not negative, with a comma before each three digits.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a figure that is not negative for a chart, with the digits that matter.
pub fn short(figure: f64) -> String {
    if figure >= 1000.0 {
        return grouped(figure);
    }
    let parts = if figure >= 100.0 {
        1.0
    } else if figure >= 1.0 {
        10.0
    } else {
        1000.0
    };
    rounded(figure, parts).to_string()
}

/// Formats so many decimals. A dash stands for what was not measured.
pub fn decimals(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

/// Formats a share of one.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Rounds to one of so many parts of one.
pub fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use super::{decimals, grouped, percent, short, significant};

    #[test]
    fn numbers_keep_their_significant_digits() {
        let shown = [65_432.1, 12.34, 0.654, 0.000_12, 0.0, f64::NAN].map(significant);
        assert_eq!(shown, ["65432", "12.3", "0.65", "0.00012", "0", "-"]);
    }

    #[test]
    fn numbers_and_figures_are_short() {
        let counts = [0.0, 999.0, 25_000.0, 2_500_000.0].map(grouped);
        assert_eq!(counts, ["0", "999", "25,000", "2,500,000"]);
        let figures = [0.0, 3.0 * 0.2, 4.56, 75.0, 123.4, 1_200.0].map(short);
        assert_eq!(figures, ["0", "0.6", "4.6", "75", "123", "1,200"]);
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        assert_eq!(
            [Some(1.26), None].map(|value| decimals(value, 1)),
            ["1.3", "-"]
        );
        assert_eq!(percent(0.286), "29 %");
    }
}
