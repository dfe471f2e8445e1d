//! The life of a token of the Argo CD account: when another one is due, what is said of its end, and which tokens of the
//! account go when one has taken the place of all (SPEC.md section 4).
//!
//! Pure. A token that others may still hold is never taken from them by what is decided here alone: who replaces one waits
//! for the grace and proves the new one first.

use jiff::Timestamp;
use serde::Serialize;

use crate::duration::Duration;
use crate::view::between;

/// How long a token is good for, unless said otherwise.
pub const LIFETIME: Duration = Duration::from_seconds(30 * DAY);
/// The shortest life that makes sense: a token must outlast the grace of the next one by far.
pub const SHORTEST: Duration = Duration::from_seconds(3600);
/// How long the old tokens go on after a new one was stored. A kubelet brings a changed Secret into a running pod within its
/// sync period and the time it caches, a minute and a half at the most by default.
pub const GRACE: Duration = Duration::from_seconds(120);
/// From when on the end of a token is worth a warning.
const SOON: Duration = Duration::from_seconds(7 * DAY);
const DAY: u64 = 24 * 3600;

/// What is known of a token without knowing the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Its id in the account.
    pub id: String,
    /// When it was made.
    pub issued: Timestamp,
    /// When it ends; never, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

impl Token {
    /// Less than a third of its life is left.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| {
            let (life, left) = (between(self.issued, expires), between(now, expires));
            left.seconds().saturating_mul(3) < life.seconds()
        })
    }
}

/// What a person should hear about the end of a token; nothing while it is far.
pub fn warning(expires: Timestamp, now: Timestamp) -> Option<String> {
    if expires <= now {
        let since = coarse(between(expires, now));
        return Some(format!("ended {since} ago: no run reaches Argo CD; `forge bootstrap` makes another one"));
    }
    let left = between(now, expires);
    (left < SOON).then(|| format!("ends in {}; `forge rotate` replaces it", coarse(left)))
}

/// The largest unit of a span, or hours beside days: a warning is not a clock.
fn coarse(span: Duration) -> Duration {
    let seconds = span.seconds();
    let unit = if seconds >= 3600 { 3600 } else { 60 };
    Duration::from_seconds(seconds / unit * unit)
}

/// The tokens of an account that go when this one has taken their place: all that are not newer. A newer one belongs to
/// somebody who replaces tokens right now, and who takes this one in turn: two at once never leave an account without any.
/// Nothing where the account does not know the one that is to stay: then its list is not to be trusted (INV-10).
pub fn others<'t>(all: &'t [Token], kept: &str) -> Option<Vec<&'t Token>> {
    let kept = all.iter().find(|token| token.id == kept)?;
    let older = |token: &&Token| (token.issued, &token.id) < (kept.issued, &kept.id);
    Some(all.iter().filter(older).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn token(id: &str, issued: i64, lives: Option<i64>) -> Token {
        Token { id: id.to_owned(), issued: at(issued), expires: lives.map(|lives| at(issued + lives)) }
    }

    #[test]
    fn another_token_is_due_when_less_than_a_third_is_left_and_never_for_one_that_does_not_end() {
        let month = token("a", 0, Some(30 * 86_400));
        for (day, due) in [(0, false), (19, false), (20, false), (21, true), (29, true), (31, true)] {
            assert_eq!(month.is_due(at(day * 86_400)), due, "day {day}");
        }
        assert!(month.is_due(at(20 * 86_400 + 1)));
        assert!(!token("b", 0, None).is_due(at(1_000_000_000)));
    }

    #[test]
    fn the_end_is_spoken_of_in_its_last_week_and_after_it() {
        let expires = at(30 * 86_400);
        assert_eq!(warning(expires, at(0)), None);
        assert_eq!(warning(expires, at(23 * 86_400)), None);
        let soon = warning(expires, at(24 * 86_400 + 100)).unwrap();
        assert!(soon.contains("ends in 5d23h;") && soon.contains("forge rotate"), "{soon}");
        let near = warning(expires, at(30 * 86_400 - 61)).unwrap();
        assert!(near.contains("ends in 1m;"), "{near}");
        for late in [0, 1, 86_400] {
            let ended = warning(expires, at(30 * 86_400 + late)).unwrap();
            assert!(ended.contains("ended") && ended.contains("forge bootstrap"), "{ended}");
        }
    }

    #[test]
    fn of_an_account_every_token_goes_but_the_kept_one_and_those_that_are_newer() {
        let all = [token("old", 0, None), token("b", 10, None), token("a", 10, Some(5)), token("new", 20, Some(5))];
        let ids = |kept: &str| others(&all, kept).map(|gone| gone.iter().map(|t| t.id.clone()).collect::<Vec<_>>());
        assert_eq!(ids("new"), Some(vec!["old".to_owned(), "b".to_owned(), "a".to_owned()]));
        assert_eq!(ids("old"), Some(vec![]));
        // Of two made in the same second one takes the other, never both each other.
        assert_eq!(ids("b"), Some(vec!["old".to_owned(), "a".to_owned()]));
        assert_eq!(ids("a"), Some(vec!["old".to_owned()]));
        assert_eq!(ids("unknown"), None);
        assert_eq!(others(&[], "a"), None);
    }
}
