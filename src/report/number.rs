//! Numbers as a reader wants them. What is not finite says so in every format.

/// `digits` significant digits without an exponent where that stays short: 0.0123, 1.23, 12.3, 1230.
pub(super) fn significant(value: f64, digits: usize) -> String {
    if let Some(name) = not_finite(value) {
        return name.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // The exponent after rounding: 9.996 has that of 10.0.
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let exponent: i32 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    if !(-4..7).contains(&exponent) {
        return scientific;
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    format!("{value:.decimals$}")
}

/// Three significant digits.
pub(super) fn short(value: f64) -> String {
    significant(value, 3)
}

/// Four significant digits, for what is held against a limit.
pub fn precise(value: f64) -> String {
    significant(value, 4)
}

/// A share as a percentage with `decimals`: 0.983 as "98.3 %".
pub(super) fn percent(share: f64, decimals: usize) -> String {
    match not_finite(share) {
        Some(name) => name.to_owned(),
        None if share.abs() >= 1e4 => format!("{} %", short(share * 100.0)),
        None => format!("{:.decimals$} %", share * 100.0),
    }
}

/// As few digits as tell it to four decimals, for what a user wrote: 0.95 as "0.95".
pub(super) fn written(value: f64) -> String {
    if value.abs() < 1e6 { ((1e4 * value).round() / 1e4).to_string() } else { short(value) }
}

/// With a sign: 0.012 as "+1.20 %".
pub(super) fn signed_percent(share: f64) -> String {
    match not_finite(share) {
        Some(name) => name.to_owned(),
        None if share.abs() >= 1e4 => format!("{} %", short(share * 100.0)),
        None => format!("{:+.2} %", share * 100.0),
    }
}

/// 1234567 as "1.23 M".
pub fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}

/// `part` of `whole`, both in the unit of `whole`: "0.83 M of 1.66 M".
pub(super) fn count_of(part: u64, whole: u64) -> String {
    let (divisor, unit, decimals) = match whole {
        0..1_000 => (1.0, "", 0),
        1_000..1_000_000 => (1e3, " K", 1),
        1_000_000..1_000_000_000 => (1e6, " M", 2),
        _ => (1e9, " B", 2),
    };
    format!("{:.decimals$}{unit} of {:.decimals$}{unit}", part as f64 / divisor, whole as f64 / divisor)
}

/// Bytes in binary units, to a hundredth.
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut scaled = value;
    while scaled.is_finite() && scaled.abs() >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let number = match unit {
        0 if value.is_finite() => format!("{value:.0}"),
        _ if scaled.abs() < 1e4 => format!("{scaled:.2}"),
        _ => short(scaled),
    };
    format!("{number} {}", units[unit])
}

/// Seconds as "12.3 s", "4 min 05 s" or "2 h 03 min".
pub(super) fn duration(seconds: f64) -> String {
    if !(0.0..1e9).contains(&seconds) {
        return format!("{} s", short(seconds));
    }
    let whole = seconds.round() as u64;
    match whole {
        0..100 => format!("{} s", short(seconds)),
        100..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// `part / whole`; NaN where that has no meaning.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { f64::NAN } else { part / whole }
}

/// With `decimals` before the power of ten: 20000000 as "2·10⁷", 0.00001 as "10⁻⁵".
pub(super) fn power(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let raised: String = exponent
        .chars()
        .map(|c| match c.to_digit(10) {
            Some(d) => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][d as usize],
            None => '⁻',
        })
        .collect();
    let whole = mantissa.trim_end_matches('0').trim_end_matches('.');
    if whole == "1" { format!("10{raised}") } else { format!("{whole}·10{raised}") }
}

/// A whole number of any length, by its digits: long ones as a power of ten.
pub(super) fn large(digits: &str) -> String {
    let long = digits.len() > 9 && digits.bytes().all(|b| b.is_ascii_digit());
    let value = digits.parse::<f64>().ok().filter(|v| long && v.is_finite());
    value.map_or_else(|| digits.to_owned(), |v| power(v, 2))
}

fn not_finite(value: f64) -> Option<&'static str> {
    match value {
        v if v.is_nan() => Some("NaN"),
        f64::INFINITY => Some("inf"),
        f64::NEG_INFINITY => Some("-inf"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_survive_rounding_and_extremes() {
        let cases =
            [(9.996, "10.0"), (0.01234, "0.0123"), (1234.5, "1234"), (0.0, "0"), (-2.0, "-2.00"), (1e9, "1.00e9")];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!(short(f64::NAN), "NaN");
        assert_eq!(percent(f64::INFINITY, 1), "inf");
        assert_eq!(percent(0.98349, 1), "98.3 %");
        assert_eq!(count_of(830_000, 1_660_000), "0.83 M of 1.66 M");
        assert_eq!((large("1044012500").as_str(), large("123456789").as_str()), ("1.04·10⁹", "123456789"));
        assert_eq!((power(2e7, 1).as_str(), power(1e-5, 1).as_str()), ("2·10⁷", "10⁻⁵"));
        assert_eq!(bytes(5.0 * 1024.0 * 1024.0), "5.00 MiB");
        assert_eq!(bytes(f64::NAN), "NaN B");
        assert_eq!((duration(245.0).as_str(), duration(3700.0).as_str()), ("4 min 05 s", "1 h 01 min"));
    }
}
