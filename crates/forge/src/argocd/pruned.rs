//! Reads of an object only the fields that somebody looks at: what Argo CD keeps of an Application beside them, its history
//! and the result of every resource of its last sync, is most of its text, and an event tells all of it each time.

use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::Application;

use Fields::{All, These};

/// Which fields of an object are read; of an array, those of each of its objects.
#[derive(Clone, Copy)]
enum Fields {
    All,
    These(&'static [(&'static str, Fields)]),
}

const SOURCE: Fields = These(&[("repoURL", All), ("path", All), ("chart", All)]);

/// What [`Application::read`] looks at.
const APPLICATION: Fields = These(&[
    (
        "metadata",
        These(&[
            ("namespace", All),
            ("name", All),
            ("resourceVersion", All),
            ("uid", All),
            ("deletionTimestamp", All),
            ("ownerReferences", All),
            ("labels", All),
            ("annotations", All),
        ]),
    ),
    (
        "spec",
        These(&[
            ("project", All),
            ("source", SOURCE),
            ("sources", SOURCE),
            ("destination", These(&[("namespace", All)])),
        ]),
    ),
    ("operation", These(&[("info", All), ("initiatedBy", All)])),
    (
        "status",
        These(&[
            ("health", These(&[("status", All)])),
            ("sync", These(&[("status", All), ("revision", All), ("revisions", All)])),
            ("conditions", These(&[("type", All), ("message", All)])),
            (
                "resources",
                These(&[
                    ("group", All),
                    ("version", All),
                    ("kind", All),
                    ("namespace", All),
                    ("name", All),
                    ("health", These(&[("status", All), ("message", All)])),
                ]),
            ),
            ("operationState", These(&[("phase", All), ("message", All), ("operation", These(&[("info", All)]))])),
        ]),
    ),
]);

/// An Application out of a text; nothing where the object has no usable name.
pub(crate) struct Pruned(pub(crate) Option<Application>);

impl<'t> Deserialize<'t> for Pruned {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        APPLICATION.deserialize(deserializer).map(|object| Self(Application::read(&object)))
    }
}

impl<'t> DeserializeSeed<'t> for Fields {
    type Value = Value;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            All => Value::deserialize(deserializer),
            These(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'t> Visitor<'t> for Fields {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Value, A::Error> {
        let fields = if let These(fields) = self { fields } else { &[] };
        let mut object = Map::new();
        while let Some(found) = map.next_key_seed(Key(fields))? {
            match found {
                Some((name, fields)) => {
                    object.insert((*name).to_owned(), map.next_value_seed(*fields)?);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(object))
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut array: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = array.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    // What should be an object and is not says as much as it does in a whole object: nothing.
    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// A name among fields; nothing for any other.
struct Key(&'static [(&'static str, Fields)]);

impl<'t> DeserializeSeed<'t> for Key {
    type Value = Option<&'static (&'static str, Fields)>;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<&'static (&'static str, Fields)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|(known, _)| *known == name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Everything that is looked at, and more.
    fn whole() -> Value {
        let info = json!([{"name": "forge-nonce", "value": "r1/a/b/2"}]);
        json!({
            "metadata": {
                "namespace": "argocd", "name": "api", "resourceVersion": "42", "uid": "7", "generation": 3,
                "deletionTimestamp": "2026-11-16T10:00:00Z", "managedFields": [{"manager": "x", "fieldsV1": {"f:a": {}}}],
                "ownerReferences": [{"kind": "ApplicationSet", "name": "dev-apps"}],
                "annotations": {"argocd.argoproj.io/tracking-id": "root:argoproj.io/Application:argocd/api"},
                "labels": {"argocd.argoproj.io/instance": "other"},
            },
            "spec": {
                "project": "dev", "syncPolicy": {"automated": {}},
                "source": {"repoURL": "u", "path": "p", "chart": "c", "targetRevision": "1"},
                "sources": [{"repoURL": "u", "path": "p"}, {"repoURL": "v", "chart": "c", "helm": {"values": "x"}}],
                "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
            },
            "operation": {"info": info, "initiatedBy": {"automated": true}, "sync": {"revision": "abc"}},
            "status": {
                "health": {"status": "Degraded", "lastTransitionTime": "2026-11-16T10:00:00Z"},
                "sync": {"status": "OutOfSync", "revision": "abc", "revisions": ["abc", "1.2.3"], "comparedTo": {}},
                "conditions": [
                    {"type": "ComparisonError", "message": "no such \u{e9}\u{201c}thing\""},
                    {"type": "DeletionError", "message": "no such project"},
                ],
                "resources": [{
                    "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": "api",
                    "status": "Synced", "health": {"status": "Degraded", "message": "exceeded"},
                }],
                "operationState": {
                    "phase": "Terminating", "message": "waiting", "operation": {"info": info, "retry": {}},
                    "syncResult": {"resources": [{"kind": "Deployment"}]}, "startedAt": "2026-11-16T10:00:00Z",
                },
                "history": [{"id": 0}, {"id": 1}], "reconciledAt": "2026-11-16T10:00:00Z",
            },
        })
    }

    /// Variants of it: what hides something else is left out of one each.
    fn samples() -> Vec<Value> {
        let hiding: [&[&[&str]]; 4] = [
            &[],
            &[&["metadata", "ownerReferences"]],
            &[&["metadata", "ownerReferences"], &["metadata", "annotations"]],
            &[&["spec", "sources"], &["status", "sync", "revisions"]],
        ];
        let without = |paths: &&[&[&str]]| {
            let mut object = whole();
            paths.iter().for_each(|path| remove(&mut object, path));
            object
        };
        hiding.iter().map(without).collect()
    }

    /// Takes a field away, from each object where there is an array of them.
    fn remove(value: &mut Value, path: &[&str]) {
        match (value, path) {
            (Value::Array(values), _) => values.iter_mut().for_each(|value| remove(value, path)),
            (Value::Object(object), [name]) => drop(object.remove(*name)),
            (Value::Object(object), [name, rest @ ..]) => {
                object.get_mut(*name).into_iter().for_each(|value| remove(value, rest));
            }
            _ => {}
        }
    }

    /// Every field that is read, by its path.
    fn paths(fields: &Fields) -> Vec<Vec<&'static str>> {
        let These(fields) = fields else { return vec![Vec::new()] };
        let below = |(name, fields): &(&'static str, Fields)| {
            let name = *name;
            paths(fields).into_iter().map(move |path| [vec![name], path].concat()).collect::<Vec<_>>()
        };
        fields.iter().flat_map(below).collect()
    }

    fn read(object: &Value) -> Option<Application> {
        serde_json::from_str::<Pruned>(&object.to_string()).unwrap().0
    }

    #[test]
    fn what_is_read_of_a_text_is_what_is_read_of_the_whole_object() {
        for whole in samples() {
            let found = Application::read(&whole).unwrap();
            assert!(
                found.deleting && found.automated && found.creator.is_some() && found.unwell.is_some(),
                "{found:?}"
            );
            assert_eq!(read(&whole), Some(found));
        }
        for pointer in
            ["/operation", "/status", "/spec", "/status/resources", "/status/operationState", "/spec/sources"]
        {
            for other in [Value::Null, json!("text"), json!(7), json!(-1.5), json!(true), json!([1, [2]]), json!({})] {
                let mut object = whole();
                *object.pointer_mut(pointer).unwrap() = other;
                assert_eq!(read(&object), Application::read(&object), "{object:#}");
            }
        }
        assert_eq!(read(&json!({"metadata": {"name": "../x"}})), None);
        assert_eq!(read(&json!("text")), None);
    }

    #[test]
    fn every_field_that_is_built_is_looked_at_and_nothing_else_is_built() {
        for path in paths(&APPLICATION) {
            let matters = |object: Value| {
                let mut less = object.clone();
                remove(&mut less, &path);
                Application::read(&less) != Application::read(&object)
            };
            assert!(samples().into_iter().any(matters), "nobody looks at {path:?}");
        }
        let pruned: Value = APPLICATION.deserialize(&whole()).unwrap();
        for pointer in
            ["/metadata/managedFields", "/status/history", "/status/operationState/syncResult", "/operation/sync"]
        {
            assert!(whole().pointer(pointer).is_some() && pruned.pointer(pointer).is_none(), "{pointer}");
        }
    }
}
