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
    let differing = names.into_iter().filter(|name| wanted.get(*name) != live.get(*name));
    let keys: Vec<String> = differing.map(|name| format!("`{}`", clip(name))).collect();
    if keys.is_empty() { Vec::new() } else { vec![Cause::ConfigDiffers { keys }] }
}
