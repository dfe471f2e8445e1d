//! EnvironmentConfigs of Crossplane: what compositions read is what Git holds.

use std::collections::BTreeSet;

use serde_json::Value;

use super::cause::Cause;
use crate::name::clip;
use crate::preflight::Looked;

/// What was read of one EnvironmentConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFacts {
    /// Its name.
    pub name: String,
    /// `data`, as Git has it.
    pub wanted: Value,
    /// The live object; nothing where there is none.
    pub live: Looked<Option<Value>>,
}

pub(super) fn judged(facts: &ConfigFacts) -> Vec<Cause> {
    let live = match &facts.live {
        Looked::NotPermitted(why) | Looked::Failed(why) => {
            let what = format!("EnvironmentConfig {}", facts.name);
            return vec![Cause::NotRead { what, why: why.clone() }];
        }
        Looked::Saw(None) => return vec![Cause::ConfigMissing],
        Looked::Saw(Some(live)) => live.get("data"),
    };
    let fields = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let (wanted, live) = (fields(Some(&facts.wanted)), fields(live));
    let names: BTreeSet<&String> = wanted.keys().chain(live.keys()).collect();
    let differing = names.into_iter().filter(|name| !is_same(wanted.get(*name), live.get(*name)));
    let keys: Vec<String> = differing.map(|name| format!("`{}`", clip(name))).collect();
    if keys.is_empty() { Vec::new() } else { vec![Cause::ConfigDiffers { keys }] }
}

/// Whether two values are one for an API server: it writes `1.0` as `1`, and what is null need not be there.
fn is_same(wanted: Option<&Value>, live: Option<&Value>) -> bool {
    match (wanted.unwrap_or(&Value::Null), live.unwrap_or(&Value::Null)) {
        (Value::Number(wanted), Value::Number(live)) => {
            wanted == live || ((wanted.is_f64() || live.is_f64()) && wanted.as_f64() == live.as_f64())
        }
        (Value::Object(wanted), Value::Object(live)) => {
            wanted.keys().chain(live.keys()).all(|name| is_same(wanted.get(name), live.get(name)))
        }
        (Value::Array(wanted), Value::Array(live)) => {
            wanted.len() == live.len()
                && wanted.iter().zip(live).all(|(wanted, live)| is_same(Some(wanted), Some(live)))
        }
        (wanted, live) => wanted == live,
    }
}
