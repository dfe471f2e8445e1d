//! Health checks for Argo CD (SPEC.md section 6): those that Forge brings, those that a repository adds or puts in their
//! place, and both as Argo CD takes them: values of its Helm chart, or entries to merge into `argocd-cm`.
//!
//! A check is one Lua script for one kind. What a script says is only known in Argo CD's own engine, which the tests use
//! (`crates/forge-sandbox/tests/lua.rs`, samples in `crates/forge-core/health/samples`). Known here is what must never
//! reach it: a script that returns nothing counts as Healthy there, whatever it looks at, so none can be built.

mod lua;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use self::lua::{Token, tokens};
use crate::name::{clip, is_label};
use crate::yaml::Position;

/// The folder of a repository that holds checks of its own, one `<group>_<Kind>.lua` each.
pub const FOLDER: &str = "health";
/// What the keys of checks in `argocd-cm` begin with.
pub const KEY_PREFIX: &str = "resource.customizations.health.";
/// What one script may have: several times what any check needs.
pub const MOST_BYTES: usize = 32 << 10;
/// What all scripts together may have: a ConfigMap ends at 1 MiB, and `argocd-cm` has more to hold.
pub const MOST_BYTES_IN_ALL: usize = 512 << 10;
/// The longest key of a ConfigMap.
const LONGEST_KEY: usize = 253;
/// Libraries of Lua that Argo CD does not load for a check, unless `resource.customizations.useOpenLibs` says so.
const LIBRARIES: [&str; 5] = ["coroutine", "debug", "io", "math", "string"];

/// Why a text is not the name of a check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not say what it is for: expected `<group>_<Kind>`, or `<Kind>` for a kind of the core group")]
pub struct CheckNameError(String);

/// The kind that a check is for, as Argo CD writes it: `<group>_<Kind>`, and `<Kind>` in the core group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckName(String);

impl CheckName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its key in `argocd-cm`.
    pub fn key(&self) -> String {
        format!("{KEY_PREFIX}{}", self.0)
    }

    /// Its file in a repository.
    pub fn path(&self) -> String {
        format!("{FOLDER}/{}.lua", self.0)
    }
}

impl FromStr for CheckName {
    type Err = CheckNameError;

    fn from_str(text: &str) -> Result<Self, CheckNameError> {
        let word = |kind: &str| {
            kind.starts_with(|c: char| c.is_ascii_alphabetic()) && kind.chars().all(|c| c.is_ascii_alphanumeric())
        };
        let good = match text.split_once('_') {
            Some((group, kind)) => group.split('.').all(is_label) && word(kind),
            // In the core group all kinds begin with a capital; `all` would be every kind there is.
            None => word(text) && text.starts_with(|c: char| c.is_ascii_uppercase()),
        };
        if good && KEY_PREFIX.len() + text.len() <= LONGEST_KEY {
            Ok(Self(text.to_owned()))
        } else {
            Err(CheckNameError(clip(text)))
        }
    }
}

impl fmt::Display for CheckName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is not a script that Argo CD can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// Beyond the limit.
    #[error("{bytes} bytes; a health check may have {}", MOST_BYTES)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Nothing but comments.
    #[error("the health check is empty")]
    Empty,
    /// It never answers.
    #[error("the health check returns nothing, which Argo CD takes for Healthy")]
    NoAnswer,
    /// A character that does not survive the way through YAML.
    #[error("character {character:?} cannot be part of a health check")]
    Character {
        /// Which.
        character: char,
        /// Where.
        at: Position,
    },
}

impl ScriptError {
    /// Where it stands.
    pub fn at(&self) -> Position {
        match self {
            Self::Character { at, .. } => *at,
            Self::TooLarge { .. } | Self::Empty | Self::NoAnswer => Position::START,
        }
    }
}

/// The Lua script of a check: not empty, answers, lines end with `\n`, and the last one is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script(String);

impl Script {
    /// A script from the text of a file.
    ///
    /// # Errors
    /// When Argo CD could not use it.
    pub fn new(text: &str) -> Result<Self, ScriptError> {
        if text.len() > MOST_BYTES {
            return Err(ScriptError::TooLarge { bytes: text.len() });
        }
        let text = text.replace("\r\n", "\n");
        let mut at = Position::START;
        for character in text.chars() {
            if !is_plain(character) {
                return Err(ScriptError::Character { character, at });
            }
            at = match character {
                '\n' => Position { line: at.line.saturating_add(1), column: 1 },
                _ => Position { column: at.column.saturating_add(1), ..at },
            };
        }
        let mut words = tokens(&text).peekable();
        if words.peek().is_none() {
            return Err(ScriptError::Empty);
        }
        if !words.any(|token| token == Token::Word("return")) {
            return Err(ScriptError::NoAnswer);
        }
        Ok(Self(format!("{}\n", text.trim_end())))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The libraries that it asks for and does not get.
    pub fn libraries(&self) -> Vec<&'static str> {
        let tokens: Vec<Token<'_>> = tokens(&self.0).collect();
        LIBRARIES.into_iter().filter(|library| asks_for(&tokens, library)).collect()
    }
}

/// True for a name that is reached into, and is neither a field itself nor a variable of the script.
fn asks_for(tokens: &[Token<'_>], library: &str) -> bool {
    let is_it = |token: &Token<'_>| *token == Token::Word(library);
    let declared = |pair: &[Token<'_>]| matches!(pair, [Token::Word("local"), name] if is_it(name));
    if tokens.windows(2).any(declared) {
        return false;
    }
    let mut before = Token::Dots;
    for pair in tokens.windows(2) {
        let [name, after] = pair else { continue };
        let field = matches!(before, Token::Sign('.' | ':'));
        if is_it(name) && !field && matches!(after, Token::Sign('.' | ':' | '[')) {
            return true;
        }
        before = *name;
    }
    false
}

/// True for what a block of text in YAML can hold as it is.
fn is_plain(c: char) -> bool {
    let special = matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    matches!(c, '\n' | '\t') || !(c.is_control() || special)
}

/// A check that Forge brings.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// The kind.
    pub name: &'static str,
    /// Its script.
    pub script: &'static str,
    /// Why an Argo CD needs it, in lines for a comment.
    pub why: &'static str,
}

macro_rules! built_in {
    ($($name:literal $why:literal;)*) => {
        /// What Forge brings, by name.
        pub const BUILT_IN: &[BuiltIn] = &[$(BuiltIn {
            name: $name,
            script: include_str!(concat!("../health/", $name, ".lua")),
            why: $why,
        },)*];
    };
}

built_in! {
    "acid.zalan.do_postgresql"
    "Clusters of Zalando's operator: with this key one that is missing counts too.";
    "apiextensions.k8s.io_CustomResourceDefinition"
    "CRDs: what uses a CRD waits until it is established, also where it is missing, and a CRD that is just being\n\
     installed does not fail a sync.";
    "apps_StatefulSet"
    "StatefulSets: ready is not enough. Pods must be available, and with OnDelete be of the last revision, before what\n\
     depends on them starts.";
    "argoproj.io_Application"
    "Applications inside Applications: Argo CD stopped assessing them in 1.8, so an app-of-apps is Healthy before its\n\
     children are. With this key a parent waits for them; where graph.yaml lets children wait for their parent (hazard\n\
     app-of-apps in ADOPTED.md), take those dependencies out first, or run `forge adopt` again afterwards.";
    "batch_Job"
    "Jobs: Argo CD takes a Job that was suspended and goes on for complete.";
    "ceph.rook.io_CephCluster"
    "Rook: Argo CD has no check for it, and a kind without one counts as Healthy as soon as it exists.";
    "networking.k8s.io_Ingress"
    "Ingresses: a load balancer that reports a failed port, and TLS for which no certificate can come, are failures.";
    "temporal.io_TemporalCluster"
    "Temporal: Argo CD has no check for it, and a kind without one counts as Healthy as soon as it exists.";
    "vault.banzaicloud.com_Vault"
    "Vault of the Bank-Vaults operator: Argo CD has no check for it, and a kind without one counts as Healthy as soon as\n\
     it exists, sealed or not.";
}

/// True if Forge brings a check for this kind.
pub fn is_built_in(name: &CheckName) -> bool {
    BUILT_IN.iter().any(|built_in| built_in.name == name.as_str())
}

/// Where a check comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Forge, and why.
    Forge(&'static str),
    /// The repository; Forge has none for this kind.
    Added,
    /// The repository, in place of Forge's.
    Replaced,
}

/// All checks of an installation, by kind: Forge's, and the repository's, which win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChecks(BTreeMap<CheckName, (Script, Origin)>);

impl HealthChecks {
    /// Forge's checks, with those of a repository added or put in their place.
    pub fn merge(own: &BTreeMap<CheckName, Script>) -> Self {
        let built_in = BUILT_IN.iter().map(|check| {
            let script = Script(check.script.to_owned());
            (CheckName(check.name.to_owned()), (script, Origin::Forge(check.why)))
        });
        let mut all: BTreeMap<_, _> = built_in.collect();
        for (name, script) in own {
            let origin = if all.contains_key(name) { Origin::Replaced } else { Origin::Added };
            all.insert(name.clone(), (script.clone(), origin));
        }
        Self(all)
    }

    /// Each check with where it comes from, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&CheckName, &Script, Origin)> {
        self.0.iter().map(|(name, (script, origin))| (name, script, *origin))
    }

    /// The entries of `argocd-cm`.
    pub fn entries(&self) -> Map<String, Value> {
        self.iter().map(|(name, script, _)| (name.key(), Value::from(script.as_str()))).collect()
    }

    /// Values of the Helm chart argo-cd. The chart writes what is in `configs.cm` as it is, without taking it for a
    /// template.
    pub fn chart_values(&self) -> Value {
        json!({"configs": {"cm": self.entries()}})
    }

    /// A ConfigMap with these entries alone, for somebody who merges it into an `argocd-cm` of their own: every key with why
    /// it is there.
    pub fn fragment(&self, namespace: &str) -> String {
        let mut text = String::from(
            "# Health checks for Argo CD, to be merged into the data of its ConfigMap argocd-cm by whoever owns it: by hand, in\n\
             # Git, or as configs.cm of its chart. Argo CD takes them up without a restart. A check of your own in health/ is\n\
             # printed here in place of Forge's.\n",
        );
        let metadata = json!({"name": "argocd-cm", "namespace": namespace});
        text.push_str(&crate::yaml::write(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})));
        text.push_str("data:\n");
        for (name, script, origin) in self.iter() {
            let why = match origin {
                Origin::Forge(why) => why.to_owned(),
                Origin::Added => format!("Yours, from {}.", name.path()),
                Origin::Replaced => format!("Yours, from {}, in place of Forge's.", name.path()),
            };
            for line in why.lines() {
                text.push_str(&format!("  # {line}\n"));
            }
            // How far a block is indented is read off its first line, unless it is said.
            let said = if script.as_str().starts_with([' ', '\t', '\n']) { "2" } else { "" };
            text.push_str(&format!("  {}: |{said}\n", name.key()));
            for line in script.as_str().lines() {
                let indent = if line.is_empty() { "" } else { "    " };
                text.push_str(&format!("{indent}{line}\n"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::{Dialect, Limits, read};

    fn own(checks: &[(&str, &str)]) -> BTreeMap<CheckName, Script> {
        checks.iter().map(|(name, text)| (name.parse().unwrap(), Script::new(text).unwrap())).collect()
    }

    #[test]
    fn a_name_is_a_kind_as_argo_cd_writes_it() {
        for good in ["apps_StatefulSet", "acid.zalan.do_postgresql", "Service", "k8s.mariadb.com_MariaDB", "a_B1"] {
            assert_eq!(good.parse::<CheckName>().unwrap().as_str(), good);
        }
        let malformed = "_ apps_ _Job apps_Stateful_Set *_Job apps_* a..b_Job -a_Job apps_1Job apps_Jöb Apps_Job";
        let elsewhere = "all service apps/StatefulSet sub/apps_Job apps_StatefulSet.lua";
        for bad in ["", "a b_Job"].into_iter().chain(malformed.split(' ')).chain(elsewhere.split(' ')) {
            assert!(bad.parse::<CheckName>().is_err(), "{bad}");
        }
        let long = |length: usize| format!("{}_K", "g".repeat(length)).parse::<CheckName>();
        let most = LONGEST_KEY - KEY_PREFIX.len() - "_K".len();
        assert!(long(most).is_ok_and(|name| name.key().len() == LONGEST_KEY) && long(most + 1).is_err());
    }

    #[test]
    fn a_script_answers_and_survives_yaml() {
        assert_eq!(Script::new("\r\n return {}\r\n\r\n").unwrap().as_str(), "\n return {}\n");
        for (text, error) in [
            ("", ScriptError::Empty),
            (" \n\t\n", ScriptError::Empty),
            ("-- return {}\n--[[ return ]]", ScriptError::Empty),
            ("local hs = {status = \"return\"}", ScriptError::NoAnswer),
            ("returned = 1", ScriptError::NoAnswer),
        ] {
            assert_eq!(Script::new(text), Err(error), "{text:?}");
        }
        let large = format!("return {{}} -- {}", "x".repeat(MOST_BYTES));
        assert_eq!(Script::new(&large), Err(ScriptError::TooLarge { bytes: large.len() }));
        for character in ['\0', '\r', '\u{7f}', '\u{85}', '\u{2028}', '\u{feff}'] {
            let at = Position { line: 2, column: 4 };
            let error = ScriptError::Character { character, at };
            assert_eq!(Script::new(&format!("return {{}}\n-- {character}")), Err(error), "{character:?}");
        }
    }

    #[test]
    fn libraries_that_are_not_loaded_are_told() {
        let asks = |text: &str| Script::new(&format!("{text}\nreturn {{}}")).unwrap().libraries();
        assert_eq!(asks("x = string.upper(a) .. math.floor(1)"), ["math", "string"]);
        assert_eq!(asks("x = a .. string.upper(b)"), ["string"]);
        assert!(asks("x = obj.spec.string.value .. table.concat({}) .. tostring(1) .. os.time()").is_empty());
        assert!(asks("local string = {}\nx = string.y").is_empty());
        assert!(asks("x = {string = 1, math = 2} -- string.upper").is_empty());
    }

    #[test]
    fn what_forge_brings_is_what_a_repository_could_hold() {
        for check in BUILT_IN {
            let name: CheckName = check.name.parse().unwrap();
            assert!(is_built_in(&name));
            let script = Script::new(check.script).unwrap();
            assert_eq!(script.as_str(), check.script, "{name}: no blank at its end, no `\\r`");
            assert!(script.libraries().is_empty(), "{name}");
            assert!(check.why.lines().all(|line| line.len() <= 116 && line.trim() == line), "{name}");
        }
        assert!(BUILT_IN.is_sorted_by(|a, b| a.name < b.name));
        assert!(!is_built_in(&"Service".parse().unwrap()));
    }

    #[test]
    fn the_check_of_a_repository_wins() {
        let own = own(&[("batch_Job", "return {status = \"Healthy\"}"), ("Service", "return {}")]);
        let merged = HealthChecks::merge(&own);
        let found: Vec<_> = merged.iter().filter(|(.., origin)| !matches!(origin, Origin::Forge(_))).collect();
        let told: Vec<_> = found.iter().map(|(name, _, origin)| (name.as_str(), *origin)).collect();
        assert_eq!(told, [("Service", Origin::Added), ("batch_Job", Origin::Replaced)]);
        assert_eq!(merged.iter().count(), BUILT_IN.len() + 1);
        let entries = merged.entries();
        assert_eq!(entries["resource.customizations.health.batch_Job"], "return {status = \"Healthy\"}\n");
        assert_eq!(entries["resource.customizations.health.Service"], "return {}\n");
        assert_eq!(merged.chart_values()["configs"]["cm"], Value::Object(entries));
    }

    #[test]
    fn the_fragment_reads_back_as_the_entries_and_says_why_before_each() {
        let awkward = [
            ("example.com_Indented", "  return {}\n\n    -- deeper"),
            ("example.com_Tabbed", "\treturn {}\n\t\t-- tab"),
            ("example.com_Late", "\n\n-- late: {{ .Values }} # no\nreturn {message = 'a: \"b\"'}   \n   \n-- |\n"),
        ];
        for own in [own(&[]), own(&awkward), own(&[("apps_StatefulSet", "return {}")])] {
            let merged = HealthChecks::merge(&own);
            let text = merged.fragment("argo-cd");
            let stream = read(&text, Dialect::Kubernetes, Limits::FILE);
            assert!(stream.problems.is_empty() && stream.documents.len() == 1, "{text}\n{:?}", stream.problems);
            let object = stream.documents[0].to_json();
            assert_eq!(object["data"], Value::Object(merged.entries()), "{text}");
            assert_eq!(object["metadata"], json!({"name": "argocd-cm", "namespace": "argo-cd"}));
            let lines: Vec<&str> = text.lines().collect();
            for (before, line) in lines.iter().zip(lines.iter().skip(1)) {
                assert!(!line.starts_with(&format!("  {KEY_PREFIX}")) || before.starts_with("  # "), "{line}");
            }
            assert_eq!(merged.fragment("argo-cd"), text);
        }
        let replaced = HealthChecks::merge(&own(&[("apps_StatefulSet", "return {}")])).fragment("argocd");
        assert!(replaced.contains("  # Yours, from health/apps_StatefulSet.lua, in place of Forge's.\n"), "{replaced}");
    }
}
