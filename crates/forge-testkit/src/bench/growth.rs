//! Figures of growing sizes side by side, and how much faster than the size each of them grew. Pure.

use std::fmt::Write as _;

/// A figure at every size; `None` where it was not seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it is, with its unit.
    pub what: String,
    /// In the order of the sizes.
    pub values: Vec<Option<f64>>,
    /// How many decimals are shown.
    pub decimals: usize,
}

/// A table of figures by a size, which is named. Behind each figure but the first of a row: its growth from the size before,
/// divided by the growth of the size. 1 is linear, less is better.
pub fn table(size: &str, sizes: &[usize], rows: &[Row]) -> String {
    let mut text = format!("  {size:<34}");
    for (n, size) in sizes.iter().enumerate() {
        let _ = if n == 0 { write!(text, "{size:>10}") } else { write!(text, "{size:>12}{:>9}", "growth") };
    }
    text.push('\n');
    for row in rows {
        let _ = write!(text, "  {:<34}", row.what);
        let mut before: Option<(usize, f64)> = None;
        for (n, size) in sizes.iter().enumerate() {
            let value = row.values.get(n).copied().flatten();
            let width = if n == 0 { 10 } else { 12 };
            let _ = match value {
                Some(value) => write!(text, "{value:>width$.*}", row.decimals),
                None => write!(text, "{:>width$}", "-"),
            };
            if n > 0 {
                let growth = before.zip(value).and_then(|(before, value)| relative(before, (*size, value)));
                let _ = match growth {
                    Some(growth) => write!(text, "{growth:>9.2}"),
                    None => write!(text, "{:>9}", "-"),
                };
            }
            before = value.map(|value| (*size, value));
        }
        text.push('\n');
    }
    text
}

/// Growth of a figure divided by the growth of the size.
fn relative((size_before, before): (usize, f64), (size, value): (usize, f64)) -> Option<f64> {
    (before > 0.0 && size_before > 0 && size > 0).then(|| (value / before) / (size as f64 / size_before as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_relative_to_that_of_the_size() {
        let row = |what: &str, values: [Option<f64>; 3]| Row { what: what.into(), values: values.into(), decimals: 1 };
        let rows = [row("linear s", [Some(10.0), Some(30.0), Some(90.0)]), row("unseen MiB", [None, Some(2.0), None])];
        let said = table("nodes", &[100, 300, 900], &rows);
        let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["linear", "s", "10.0", "30.0", "1.00", "90.0", "1.00"]);
        assert_eq!(lines[2], ["unseen", "MiB", "-", "2.0", "-", "-", "-"]);
    }
}
