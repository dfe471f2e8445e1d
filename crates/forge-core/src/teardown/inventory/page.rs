//! When a list is complete: pages that belong together and end, and an empty list only where it was read twice.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Item, Listing};
use crate::preflight::text;

/// How often something that is no list is read again.
const BROKEN: usize = 3;

/// All objects of a kind at one moment. Made only of pages that were read to their end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complete {
    items: Vec<Item>,
    /// The moment, as the API server counts it.
    version: String,
}

impl Complete {
    /// The objects.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The moment as a number, where it is one: API servers count upwards.
    fn moment(&self) -> Option<u64> {
        self.version.parse().ok()
    }

    /// It is of a moment before the other one.
    fn is_older_than(&self, other: &Self) -> bool {
        self.moment().zip(other.moment()).is_some_and(|(own, other)| own < other)
    }
}

/// A list on its way, page by page.
#[derive(Debug, Default)]
pub struct Pages {
    items: Vec<Item>,
    version: Option<String>,
    /// How many there are by the first page's word.
    wanted: usize,
    tokens: BTreeSet<String>,
    done: bool,
}

impl Pages {
    /// Takes the next page; gives what the page after it is asked for with, or nothing where it was the last.
    ///
    /// # Errors
    /// When it is not a page of this list, or the list ends too soon.
    pub fn take(&mut self, page: &Value) -> Result<Option<String>, String> {
        let found: &[Value] = match page.get("items") {
            Some(Value::Array(found)) => found,
            // An empty collection may say `null`.
            Some(Value::Null) => &[],
            _ => return Err("a page has no items".to_owned()),
        };
        let version = text(page, "/metadata/resourceVersion").ok_or("a page names no resourceVersion")?;
        let first = match &self.version {
            None => true,
            Some(first) if first == version => false,
            Some(first) => return Err(format!("pages of different moments: {first} and {version}")),
        };
        for object in found {
            self.items.push(Item::read(object).ok_or("an object has no name or no identity")?);
        }
        let left = page.pointer("/metadata/remainingItemCount").and_then(Value::as_u64);
        let left = left.and_then(|left| usize::try_from(left).ok()).unwrap_or(0);
        if first {
            self.version = Some(version.to_owned());
            self.wanted = self.items.len().saturating_add(left);
        }
        match text(page, "/metadata/continue") {
            None if left > 0 => Err(format!("it ends although {left} more objects are said to follow")),
            None if self.items.len() < self.wanted => {
                Err(format!("it ends after {} of {} objects", self.items.len(), self.wanted))
            }
            None => {
                self.done = true;
                Ok(None)
            }
            Some(token) if !self.tokens.insert(token.to_owned()) => Err("it does not end".to_owned()),
            Some(token) => Ok(Some(token.to_owned())),
        }
    }

    /// The whole list, by namespace and name: an API server may have an order of its own (INV-9).
    ///
    /// # Errors
    /// When the last page is missing, or pages repeat each other: then as many objects as were announced are not all of them.
    pub fn complete(self) -> Result<Complete, String> {
        let Self { mut items, version: Some(version), done: true, .. } = self else {
            return Err("the last page is missing".to_owned());
        };
        items.sort_by(|one, other| {
            (&one.namespace, &one.name, &one.uid).cmp(&(&other.namespace, &other.name, &other.uid))
        });
        let is_one = |one: &Item, other: &Item| {
            one.namespace == other.namespace && one.name == other.name && one.uid == other.uid
        };
        if items.windows(2).any(|pair| matches!(pair, [one, other] if is_one(one, other))) {
            return Err("an object is in it twice".to_owned());
        }
        Ok(Complete { items, version })
    }
}

/// What came of reading a list once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// All of it.
    Whole(Complete),
    /// Something that is no whole list; reading again may help.
    Broken(String),
    /// It may not be read; reading again does not help.
    Refused(String),
}

/// How often a list was read, and what came of it: an API server that has just started, or that is one of several, may answer
/// with an empty list although there is something.
#[derive(Debug)]
pub struct Readings<'e> {
    earlier: Option<&'e Complete>,
    broken: usize,
    empty: usize,
    full: usize,
}

impl<'e> Readings<'e> {
    /// Of a kind of which this was read before.
    pub fn new(earlier: Option<&'e Complete>) -> Self {
        Self { earlier, broken: 0, empty: 0, full: 0 }
    }

    /// Takes one reading; gives what is known by now, or nothing where it has to be read again. What is empty is read twice,
    /// and where one reading contradicts another, a third one decides for objects that were seen and never against them.
    pub fn take(&mut self, read: Read) -> Option<Listing> {
        let list = match read {
            Read::Refused(why) => return Some(Listing::Unknown(why)),
            Read::Broken(why) => return self.again(why),
            Read::Whole(list) => list,
        };
        if let Some(earlier) = self.earlier
            && list.is_older_than(earlier)
        {
            let why = format!("it is of an earlier moment than what was read before: {}", list.version);
            return self.again(why);
        }
        if list.items.is_empty() {
            self.empty += 1;
            return match (self.full, self.empty) {
                (0, 1) => None,
                (0, _) => Some(Listing::Known(list)),
                _ => Some(Listing::Unknown("it was empty, then not, then empty again".to_owned())),
            };
        }
        self.full += 1;
        (self.empty == 0 || self.full > 1).then_some(Listing::Known(list))
    }

    fn again(&mut self, why: String) -> Option<Listing> {
        self.broken += 1;
        (self.broken >= BROKEN).then_some(Listing::Unknown(why))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::teardown::inventory::tests::{complete, object};

    fn page(version: &str, names: &[&str], more: &str, left: Option<u64>) -> Value {
        let items: Vec<Value> = names.iter().map(|name| object(name, json!({}))).collect();
        let mut metadata = json!({"resourceVersion": version, "continue": more});
        if let Some(left) = left {
            metadata["remainingItemCount"] = json!(left);
        }
        json!({"metadata": metadata, "items": items})
    }

    fn read(pages: &[Value]) -> Result<Vec<String>, String> {
        let mut list = Pages::default();
        for page in pages {
            list.take(page)?;
        }
        Ok(list.complete()?.items().iter().map(|item| item.name.clone()).collect())
    }

    #[test]
    fn pages_of_one_moment_that_end_are_a_list() {
        let pages =
            [page("7", &["a", "b"], "t1", Some(3)), page("7", &["c", "d"], "t2", Some(1)), page("7", &["e"], "", None)];
        assert_eq!(read(&pages).unwrap(), ["a", "b", "c", "d", "e"]);
        assert_eq!(
            read(&[page("7", &["c", "a"], "t1", Some(1)), page("7", &["b"], "", None)]).unwrap(),
            ["a", "b", "c"]
        );
        assert_eq!(read(&[page("7", &[], "", None)]).unwrap(), [""; 0]);
        assert_eq!(read(&[json!({"metadata": {"resourceVersion": "7"}, "items": null})]).unwrap(), [""; 0]);
    }

    #[test]
    fn what_ends_too_soon_changes_its_moment_or_does_not_end_is_no_list() {
        for (pages, why) in [
            (vec![page("7", &["a"], "t1", Some(1))], "the last page is missing"),
            (vec![page("7", &["a"], "", Some(2))], "2 more objects"),
            (vec![page("7", &["a"], "t1", Some(2)), page("7", &["b"], "", None)], "after 2 of 3 objects"),
            (vec![page("7", &["a"], "t1", None), page("8", &["b"], "", None)], "different moments"),
            (vec![page("7", &["a"], "t1", None), page("7", &["a"], "t1", None)], "does not end"),
            // As many as were announced, and one of them is not there.
            (vec![page("7", &["a", "b"], "t1", Some(2)), page("7", &["b", "c"], "", None)], "in it twice"),
            (vec![json!({"kind": "Status"})], "no items"),
            (vec![json!({"items": []})], "no resourceVersion"),
            (vec![json!({"metadata": {"resourceVersion": "7"}, "items": [{}]})], "no name"),
            (vec![], "the last page is missing"),
        ] {
            let said = read(&pages).unwrap_err();
            assert!(said.contains(why), "{said}: {why}");
        }
    }

    /// `E` empty, `F` with an object, `B` broken, `R` refused, `O` of an earlier moment.
    fn settle(readings: &str, earlier: Option<&Complete>) -> Option<String> {
        let mut taken = Readings::new(earlier);
        for (n, reading) in readings.chars().enumerate() {
            let read = match reading {
                'E' => Read::Whole(complete(9, &[])),
                'F' => Read::Whole(complete(9, &[object("a", json!({}))])),
                'O' => Read::Whole(complete(3, &[])),
                'B' => Read::Broken("cut off".to_owned()),
                _ => Read::Refused("forbidden".to_owned()),
            };
            if let Some(listing) = taken.take(read) {
                assert_eq!(n + 1, readings.len(), "{readings}: it was settled before");
                return Some(match listing {
                    Listing::Known(list) => format!("{} known", list.items().len()),
                    Listing::Unknown(why) => why,
                });
            }
        }
        None
    }

    #[test]
    fn an_empty_list_is_believed_when_it_was_read_twice_and_never_against_what_was_seen() {
        for (readings, wanted) in [
            ("F", Some("1 known")),
            ("E", None),
            ("EE", Some("0 known")),
            ("EF", None),
            ("EFF", Some("1 known")),
            ("EFE", Some("it was empty, then not, then empty again")),
            ("R", Some("forbidden")),
            ("ER", Some("forbidden")),
            ("BBF", Some("1 known")),
            ("BBB", Some("cut off")),
            ("BEBE", Some("0 known")),
        ] {
            assert_eq!(settle(readings, None).as_deref(), wanted, "{readings}");
        }
    }

    #[test]
    fn what_is_older_than_what_was_read_before_is_not_believed() {
        let earlier = complete(5, &[object("a", json!({}))]);
        assert_eq!(settle("EE", Some(&earlier)).as_deref(), Some("0 known"));
        assert_eq!(settle("OEE", Some(&earlier)).as_deref(), Some("0 known"));
        assert!(settle("OOO", Some(&earlier)).unwrap().contains("earlier moment"));
        // Where nothing was read before, there is nothing to compare with.
        assert_eq!(settle("OO", None).as_deref(), Some("0 known"));
    }

    proptest! {
        /// Whatever an API server answers, it is settled after a few readings, and an empty list takes two empty readings and
        /// none that was not.
        #[test]
        fn every_list_is_settled_soon_and_only_two_empty_readings_make_an_empty_one(readings in prop::collection::vec(0..4_u8, 9)) {
            let mut taken = Readings::new(None);
            let (mut empty, mut full) = (0, 0);
            for (n, reading) in readings.into_iter().enumerate() {
                let read = match reading {
                    0 => { empty += 1; Read::Whole(complete(9, &[])) }
                    1 => { full += 1; Read::Whole(complete(9, &[object("a", json!({}))])) }
                    2 => Read::Broken("cut off".to_owned()),
                    _ => Read::Refused("forbidden".to_owned()),
                };
                if let Some(listing) = taken.take(read) {
                    if let Listing::Known(list) = listing
                        && list.items().is_empty()
                    {
                        prop_assert!(empty == 2 && full == 0);
                    }
                    return Ok(());
                }
                prop_assert!(n < 6, "not settled after {n} readings");
            }
        }
    }
}
