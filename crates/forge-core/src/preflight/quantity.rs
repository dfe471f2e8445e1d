//! Quantities as Kubernetes writes them: `250m`, `4`, `16Gi`, `1e3`.

/// A quantity in thousandths, rounded up; nothing where the text is none, is negative, or is beyond all measure.
pub(super) fn thousandths(text: &str) -> Option<u128> {
    const LONGEST: usize = 40;
    if text.len() > LONGEST {
        return None;
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let (up, down) = factor(suffix)?;
    let down = down.checked_mul(10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let product = digits.checked_mul(up)?.checked_mul(1000)?;
    Some(product.div_ceil(down))
}

/// What a suffix multiplies with and divides by.
fn factor(suffix: &str) -> Option<(u128, u128)> {
    let ten = |exponent: u32| 10_u128.checked_pow(exponent);
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']).and_then(|text| text.parse::<i32>().ok()) {
        let size = ten(exponent.unsigned_abs())?;
        return Some(if exponent < 0 { (1, size) } else { (size, 1) });
    }
    let two = |exponent: u32| Some((1_u128 << exponent, 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, ten(9)?)),
        "u" => Some((1, ten(6)?)),
        "m" => Some((1, ten(3)?)),
        "k" => Some((ten(3)?, 1)),
        "M" => Some((ten(6)?, 1)),
        "G" => Some((ten(9)?, 1)),
        "T" => Some((ten(12)?, 1)),
        "P" => Some((ten(15)?, 1)),
        "E" => Some((ten(18)?, 1)),
        "Ki" => two(10),
        "Mi" => two(20),
        "Gi" => two(30),
        "Ti" => two(40),
        "Pi" => two(50),
        "Ei" => two(60),
        _ => None,
    }
}

/// Thousandths of a byte as people write them.
pub(super) fn bytes(thousandths: u128) -> String {
    let mebibytes = (thousandths / 1000) >> 20;
    if mebibytes >= 10_240 { format!("{}Gi", mebibytes >> 10) } else { format!("{mebibytes}Mi") }
}

/// Thousandths of a processor as people write them.
pub(super) fn processors(thousandths: u128) -> String {
    if thousandths.is_multiple_of(1000) { (thousandths / 1000).to_string() } else { format!("{thousandths}m") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("0", 0),
            ("4", 4_000),
            ("250m", 250),
            ("1500u", 2),
            ("1n", 1),
            ("0.5", 500),
            (".5", 500),
            ("2.", 2_000),
            ("+1", 1_000),
            ("1k", 1_000_000),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("12e-1", 1_200),
            ("1Ki", 1_024_000),
            ("128974848", 128_974_848_000),
            ("129M", 129_000_000_000),
            ("16Gi", (16_u128 << 30) * 1000),
            ("1E", 1_000_000_000_000_000_000_000),
        ] {
            assert_eq!(thousandths(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_none() {
        let long = "9".repeat(41);
        for text in
            ["", ".", "x", "-1", "1.2.3", "1kk", "1 Gi", "1gi", "Gi", "1e", "1e99", "1e-99", "٣", "1\u{0}", &long]
        {
            assert_eq!(thousandths(text), None, "{text:?}");
        }
        // Beyond all measure, and not a small number by accident.
        assert_eq!(thousandths("99999999999999999999999999999999999999Ei"), None);
    }

    #[test]
    fn sizes_are_shown_as_people_write_them() {
        assert_eq!(bytes((64_u128 << 20) * 1000), "64Mi");
        assert_eq!(bytes((16_u128 << 30) * 1000), "16Gi");
        assert_eq!((processors(2_000), processors(50)), ("2".to_owned(), "50m".to_owned()));
    }
}
