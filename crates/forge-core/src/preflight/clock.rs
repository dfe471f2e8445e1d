//! Whether this machine and the API server agree about the time.
//!
//! A server says in whole seconds when it answered, and it answered at some moment between the question and the receipt.
//! So the difference lies between two bounds, and only what is outside of them is called one.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use super::{Check, Finding, Judged, Severity};

/// Differences up to this, in milliseconds, do not matter.
const WARNED: i64 = 5_000;
/// A Lease lasts so long: with a larger difference a run that lives is taken for a dead one.
const BLOCKING: i64 = 30_000;

/// One question, by the clock of this machine, and the time that the answer carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When it was asked.
    pub sent: Timestamp,
    /// When it was answered.
    pub received: Timestamp,
    /// The header `Date` of the answer.
    pub date: Timestamp,
}

impl Sample {
    /// With the header as it stands in the answer; nothing where it is no date.
    pub fn read(sent: Timestamp, received: Timestamp, header: &str) -> Option<Self> {
        static PARSER: DateTimeParser = DateTimeParser::new();
        Some(Self { sent, received, date: PARSER.parse_timestamp(header.trim()).ok()? })
    }

    /// By how many milliseconds the server's clock is ahead: at least, and at most.
    fn bounds(&self) -> Option<(i64, i64)> {
        let (sent, received, date) =
            (self.sent.as_millisecond(), self.received.as_millisecond(), self.date.as_millisecond());
        // A clock that was set back meanwhile measures nothing.
        (received >= sent).then(|| (date - received, date + 1_000 - sent))
    }
}

/// The time by the server's clock, as far as it is known; our own where it is not.
pub fn at_server(samples: &[Sample], now: Timestamp) -> Timestamp {
    let ahead = bounds(samples).map_or(0, |(least, most)| if least > 0 { least } else { most.min(0) });
    now.checked_add(jiff::SignedDuration::from_millis(ahead)).unwrap_or(now)
}

/// What all samples agree on; of samples that contradict each other the narrowest.
fn bounds(samples: &[Sample]) -> Option<(i64, i64)> {
    let all: Vec<(i64, i64)> = samples.iter().filter_map(Sample::bounds).collect();
    let least = all.iter().map(|(least, _)| *least).max()?;
    let most = all.iter().map(|(_, most)| *most).min()?;
    if least <= most {
        return Some((least, most));
    }
    all.into_iter().min_by_key(|(least, most)| most - least)
}

/// Judges the difference.
pub fn clock(samples: &[Sample]) -> Judged {
    let Some((least, most)) = bounds(samples) else {
        return Judged::skipped(Check::Clock, "the API server does not say what time it is");
    };
    // The smallest difference that explains what was seen.
    let surely = if least > 0 {
        least
    } else if most < 0 {
        -most
    } else {
        0
    };
    let direction = if least > 0 { "ahead of" } else { "behind" };
    let seen = if surely == 0 {
        format!("no difference within {}", seconds(most - least))
    } else {
        format!("the API server is at least {} {direction} this machine", seconds(surely))
    };
    let judged = Judged::new(Check::Clock, &seen);
    let severity = match surely {
        surely if surely > BLOCKING => Severity::Blocking,
        surely if surely > WARNED => Severity::Warning,
        _ => return judged,
    };
    let evidence = samples.iter().map(|sample| {
        format!(
            "asked {}, answered {}, Date {}",
            sample.sent.strftime("%FT%T%.3fZ"),
            sample.received.strftime("%FT%T%.3fZ"),
            sample.date.strftime("%FT%TZ")
        )
    });
    judged.with(
        Finding::new(
            Check::Clock,
            severity,
            seen,
            "Leases, tokens and certificates are judged by the clock: a run that lives could be taken for a dead one, and a token for one that is not valid yet or any more",
            "set the clock that is wrong: `timedatectl set-ntp true` on this machine, or NTP on the nodes of the control plane; `date -u` on both must say the same",
        )
        .because(evidence),
    )
}

fn seconds(milliseconds: i64) -> String {
    format!("{}.{} s", milliseconds / 1000, (milliseconds % 1000).abs() / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_790_000_000_000 + milliseconds).unwrap()
    }

    fn sample(sent: i64, received: i64, date: i64) -> Sample {
        Sample { sent: at(sent), received: at(received), date: at(date) }
    }

    #[test]
    fn a_difference_is_only_what_neither_the_round_trip_nor_whole_seconds_explain() {
        assert_eq!(clock(&[sample(0, 20, 0)]).worst(), None);
        // Asked at 0.9, answered within the second 0.
        assert_eq!(clock(&[sample(900, 950, 0)]).worst(), None);
        // 6 s ahead of the receipt, and of nothing less.
        assert_eq!(clock(&[sample(0, 20, 6_000)]).worst(), Some(Severity::Warning));
        assert_eq!(clock(&[sample(0, 2_000, 6_000)]).worst(), None);
        // Behind: 6 s before the question, less the second that it may have been.
        assert_eq!(clock(&[sample(0, 20, -6_000)]).worst(), None);
        assert_eq!(clock(&[sample(0, 20, -7_000)]).worst(), Some(Severity::Warning));
    }

    #[test]
    fn more_than_a_lease_blocks_in_both_directions() {
        for date in [30_100, -31_100, 86_400_000, -86_400_000_000] {
            let judged = clock(&[sample(0, 20, date)]);
            assert_eq!(judged.worst(), Some(Severity::Blocking), "{date}");
            assert!(judged.findings[0].fix.contains("NTP") && judged.findings[0].evidence.len() == 1);
        }
    }

    #[test]
    fn a_slow_answer_proves_nothing_and_a_quick_one_beside_it_does() {
        let slow = sample(0, 90_000, 45_000);
        assert_eq!(clock(&[slow]).worst(), None);
        assert_eq!(clock(&[slow, sample(90_000, 90_010, 45_000)]).worst(), Some(Severity::Blocking));
    }

    #[test]
    fn a_clock_that_jumps_and_answers_without_a_date_are_not_judged() {
        assert!(clock(&[]).skipped);
        assert!(clock(&[sample(1_000, 0, 0)]).skipped);
        // Contradictory: the narrowest counts.
        assert_eq!(clock(&[sample(0, 500, 0), sample(0, 10, 100_000)]).worst(), Some(Severity::Blocking));
        assert!(Sample::read(at(0), at(1), "yesterday").is_none());
        assert!(Sample::read(at(0), at(1), "").is_none());
    }

    #[test]
    fn a_header_is_read_as_servers_write_it() {
        let sample = Sample::read(at(0), at(1), "Mon, 16 Nov 2026 10:00:00 GMT").unwrap();
        assert_eq!(sample.date.to_string(), "2026-11-16T10:00:00Z");
    }

    #[test]
    fn the_time_of_the_server_is_ours_where_they_agree_and_corrected_where_they_do_not() {
        assert_eq!(at_server(&[sample(0, 20, 0)], at(5_000)), at(5_000));
        assert_eq!(at_server(&[], at(5_000)), at(5_000));
        assert_eq!(at_server(&[sample(0, 0, 60_000)], at(5_000)), at(65_000));
        assert_eq!(at_server(&[sample(0, 0, -61_000)], at(5_000)), at(-55_000));
    }
}
