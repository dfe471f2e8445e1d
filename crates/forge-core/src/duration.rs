//! Spans of time as people write them (`90s`, `5m`, `1h30m`), whole seconds, never negative.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::name::clip;

/// Longest span that a file may ask for: a year. Beyond it lies a typing error, and overflow.
const MAX_SECONDS: u64 = 366 * 24 * 3600;

/// Why a text is not a span of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a duration: {rule}")]
pub struct DurationError {
    text: String,
    rule: &'static str,
}

/// A span of whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Duration(u64);

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of so many seconds, at most a year.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(if seconds > MAX_SECONDS { MAX_SECONDS } else { seconds })
    }

    /// The span in seconds.
    pub const fn seconds(self) -> u64 {
        self.0
    }

    /// Times a factor, capped: the back-off of a retry.
    pub fn grown(self, factor: u32, times: u32, max: Self) -> Self {
        let factor = u64::from(factor.max(1));
        let grown = (0..times).try_fold(self.0, |span, _| if span > max.0 { None } else { span.checked_mul(factor) });
        Self(grown.unwrap_or(max.0).min(max.0))
    }

    /// The same span for a clock.
    pub fn as_jiff(self) -> jiff::SignedDuration {
        jiff::SignedDuration::from_secs(i64::try_from(self.0).unwrap_or(i64::MAX))
    }
}

impl std::ops::Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, |a, b| a + b)
    }
}

impl FromStr for Duration {
    type Err = DurationError;
    fn from_str(text: &str) -> Result<Self, DurationError> {
        let error = |rule| DurationError { text: clip(text), rule };
        const FORM: &str = "write it like `90s`, `5m`, `2h`, `1d` or `1h30m`";
        let mut total: u64 = 0;
        let mut number: Option<u64> = None;
        let mut last_unit = u64::MAX;
        for c in text.chars() {
            if let Some(digit) = c.to_digit(10) {
                let next = number.unwrap_or(0).checked_mul(10).and_then(|n| n.checked_add(u64::from(digit)));
                number = Some(next.ok_or_else(|| error("it is longer than a year"))?);
                continue;
            }
            let unit = match c {
                'd' => 24 * 3600,
                'h' => 3600,
                'm' => 60,
                's' => 1,
                _ => return Err(error(FORM)),
            };
            if unit >= last_unit {
                return Err(error("units go from large to small, each once"));
            }
            last_unit = unit;
            let count = number.take().ok_or_else(|| error(FORM))?;
            total = count
                .checked_mul(unit)
                .and_then(|s| s.checked_add(total))
                .filter(|s| *s <= MAX_SECONDS)
                .ok_or_else(|| error("it is longer than a year"))?;
        }
        if number.is_some() || last_unit == u64::MAX {
            return Err(error(FORM));
        }
        Ok(Self(total))
    }
}

impl TryFrom<String> for Duration {
    type Error = DurationError;
    fn try_from(text: String) -> Result<Self, DurationError> {
        text.parse()
    }
}

impl From<Duration> for String {
    fn from(span: Duration) -> Self {
        span.to_string()
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, letter) in [(24 * 3600, 'd'), (3600, 'h'), (60, 'm'), (1, 's')] {
            if rest >= unit {
                write!(f, "{}{letter}", rest / unit)?;
                rest %= unit;
            }
        }
        Ok(())
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$", "minLength": 2})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back_as_the_same_span() {
        for seconds in [0, 1, 59, 60, 61, 3600, 5400, 86_400, 90_061] {
            let span = Duration::from_seconds(seconds);
            assert_eq!(span.to_string().parse::<Duration>().unwrap(), span, "{span}");
        }
    }

    #[test]
    fn half_written_and_huge_spans_are_refused() {
        for bad in ["", "5", "m", "5m5", "5s5m", "5m5m", "-5m", "1.5h", "99999999999999999999s", "400d", "5 m"] {
            assert!(bad.parse::<Duration>().is_err(), "{bad}");
        }
    }

    #[test]
    fn back_off_grows_by_its_factor_up_to_its_limit() {
        let (first, max) = (Duration::from_seconds(5), Duration::from_seconds(120));
        let spans: Vec<u64> = (0..7).map(|n| first.grown(2, n, max).seconds()).collect();
        assert_eq!(spans, [5, 10, 20, 40, 80, 120, 120]);
        assert_eq!(first.grown(u32::MAX, u32::MAX, max), max);
    }
}
