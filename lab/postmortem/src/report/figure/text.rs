//! Estimates of text widths. The reader's font is unknown, so the estimate is on the large side.

/// Estimates the width of a text at this font size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

fn em(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.31,
        'f' | 't' | 'r' | ' ' | '(' | ')' | '[' | ']' | '-' | '/' | '"' => 0.41,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.95,
        'A'..='Z' => 0.7,
        '\u{1100}'..='\u{ffff}' => 1.05,
        _ => 0.62,
    }
}

/// Returns the part of the text that fits, with an ellipsis. Returns none if almost nothing fits.
pub(super) fn fit(text: &str, size: f64, room: f64) -> Option<String> {
    if width(text, size) <= room {
        return Some(text.to_owned());
    }
    let mut fitting = String::new();
    let mut used = em('\u{2026}') * size;
    for letter in text.chars() {
        used += em(letter) * size;
        if used > room {
            break;
        }
        fitting.push(letter);
    }
    let fitting = fitting.trim_end_matches([' ', ',', ':', ';']);
    (fitting.chars().count() >= 6).then(|| format!("{fitting}\u{2026}"))
}

/// Formats a coordinate with the precision that is visible.
pub(super) fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0")
        .map_or_else(|| text.clone(), str::to_owned)
}

/// Formats a time or a length in seconds.
pub(super) fn seconds(seconds: f64) -> String {
    format!("{seconds:.1}\u{a0}s")
}

#[cfg(test)]
mod tests {
    use super::{fit, n, width};

    #[test]
    fn a_text_without_room_is_cut_with_an_ellipsis() {
        assert_eq!(fit("resumes", 12.0, 100.0).as_deref(), Some("resumes"));
        let cut = fit("resumes after a long pause", 12.0, 90.0).unwrap();
        assert!(
            cut.ends_with('\u{2026}') && width(&cut, 12.0) <= 90.0,
            "{cut}"
        );
        assert_eq!(fit("resumes after a long pause", 12.0, 30.0), None);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            (n(2.0), n(2.04), n(-0.26)),
            ("2".into(), "2".into(), "-0.3".into())
        );
    }
}
