//! Rules for manifests, whoever wrote them: hooks, sync waves, images. Secrets have a module of their own.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::secrets;
use crate::code::Code;
use crate::finding::{Finding, Place};
use crate::name::clip;
use crate::yaml::{Node, Position, Value};

/// What a text may hold, by its words: most files hold none of it and are never walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hints(u32);

impl Hints {
    pub(super) const HOOK: u32 = 1;
    pub(super) const WAVE: u32 = 2;
    pub(super) const IMAGE: u32 = 4;
    pub(super) const SECRET: u32 = 8;
    pub(super) const TOKEN: u32 = 16;
    pub(super) const PROJECT: u32 = 32;

    pub(super) fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
}

/// Words, in any case, and what they hint at.
const WORDS: &[(&str, u32)] = &[
    ("/hook", Hints::HOOK),
    ("sync-wave", Hints::WAVE),
    ("image", Hints::IMAGE),
    ("secret", Hints::SECRET),
    ("passw", Hints::SECRET),
    ("passphrase", Hints::SECRET),
    ("token", Hints::SECRET),
    ("apikey", Hints::SECRET),
    ("api_key", Hints::SECRET),
    ("api-key", Hints::SECRET),
    ("accesskey", Hints::SECRET),
    ("access_key", Hints::SECRET),
    ("privatekey", Hints::SECRET),
    ("private_key", Hints::SECRET),
    ("kind: config", Hints::SECRET),
    ("client-key-data", Hints::SECRET),
    ("syncwindows", Hints::PROJECT),
    ("allowempty", Hints::PROJECT),
];

static FINDER: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let words = WORDS.iter().map(|(word, _)| *word).chain(secrets::ANCHORS.iter().copied());
    AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok()
});

/// Finds the hints of a text in one pass.
pub(super) fn hints(text: &str) -> Hints {
    let Some(finder) = FINDER.as_ref() else { return Hints(u32::MAX) };
    let mut hints = 0;
    for found in finder.find_overlapping_iter(text) {
        hints |= WORDS.get(found.pattern().as_usize()).map_or(Hints::TOKEN, |(_, bit)| *bit);
    }
    Hints(hints)
}

/// Checks one document.
pub(super) fn document(path: &str, document: &Node<'_>, hints: Hints, findings: &mut Vec<Finding>) {
    if hints.has(Hints::HOOK | Hints::WAVE | Hints::IMAGE | Hints::PROJECT) {
        let kind = document.text_at(&["kind"]).unwrap_or_default();
        let between = matches!(kind, "Application" | "ApplicationSet")
            && document.text_at(&["apiVersion"]).is_some_and(|version| version.starts_with("argoproj.io/"));
        let mut walk = Walk { path, findings, applications: between };
        walk.node(document);
        if hints.has(Hints::PROJECT) {
            walk.argo_policies(document, kind);
        }
    }
    if hints.has(Hints::SECRET) {
        secrets::in_document(path, document, findings);
    }
}

struct Walk<'f> {
    path: &'f str,
    findings: &'f mut Vec<Finding>,
    /// Inside an Application or ApplicationSet.
    applications: bool,
}

impl Walk<'_> {
    fn report(&mut self, code: Code, at: Position, message: String, fix: &str) {
        self.findings.push(Finding::new(code, Place::new(self.path, at), message).with_fix(fix));
    }

    fn node(&mut self, node: &Node<'_>) {
        match &node.value {
            Value::Scalar(_) => {}
            Value::Sequence(items) => items.iter().for_each(|item| self.node(item)),
            Value::Mapping(entries) => {
                for (key, value) in entries {
                    match &*key.text {
                        "argocd.argoproj.io/hook" => self.argo_hook(key.at, value),
                        "helm.sh/hook" => self.helm_hook(key.at, value.text().unwrap_or_default()),
                        "argocd.argoproj.io/sync-wave" => self.wave(value),
                        "image" => self.image(value),
                        _ => {}
                    }
                    self.node(value);
                }
            }
        }
    }

    fn argo_hook(&mut self, at: Position, value: &Node<'_>) {
        let text = value.text().unwrap_or_default();
        if text.split(',').any(|hook| matches!(hook.trim(), "PreSync" | "PostSync")) {
            let message = format!("hook `{}` runs around a sync, where order must not live (INV-8)", clip(text));
            self.report(Code::ArgoHook, at, message, HOOK_FIX);
        }
    }

    fn helm_hook(&mut self, at: Position, text: &str) {
        let ordering = |hook: &str| {
            let hook = hook.trim().trim_matches(['"', '\'']);
            ["pre-", "post-"].iter().any(|when| {
                hook.strip_prefix(when)
                    .is_some_and(|what| matches!(what, "install" | "upgrade" | "delete" | "rollback"))
            })
        };
        if text.split(',').any(ordering) {
            let message =
                format!("Helm hook `{}` runs around an install, where order must not live (INV-8)", clip(text));
            self.report(Code::HelmHook, at, message, HOOK_FIX);
        }
    }

    fn wave(&mut self, value: &Node<'_>) {
        let text = value.text().unwrap_or_default();
        match text.trim().parse::<i64>() {
            Ok(0) => {}
            Ok(_) if self.applications => self.report(
                Code::WaveBetweenApplications,
                value.at,
                "a sync wave does not order one Application before another".to_owned(),
                "remove it and write the order as `dependsOn` in graph.yaml",
            ),
            Ok(-3..=3) => {}
            _ => self.report(
                Code::WaveOutOfRange,
                value.at,
                format!("sync wave `{}`; -3 to 3 are for order inside one application", clip(text)),
                "split the application and order the parts in graph.yaml",
            ),
        }
    }

    fn image(&mut self, value: &Node<'_>) {
        const FIX: &str = "write the digest: `name@sha256:…`";
        match &value.value {
            Value::Scalar(scalar) => {
                let text = scalar.text.trim();
                let reference = !text.is_empty()
                    && !value.is_null()
                    && !text.contains(char::is_whitespace)
                    && !text.contains("{{")
                    && !text.contains("${");
                if reference && !fixed(text) {
                    self.report(
                        Code::MutableTag,
                        value.at,
                        format!("image `{}` is not fixed by digest", clip(text)),
                        FIX,
                    );
                }
            }
            Value::Mapping(_) => {
                // Helm's way: repository and tag. A chart's schema has mappings of the same name, but no texts in them.
                let text = |key| value.get(key).filter(|node| !node.is_null()).and_then(Node::text);
                let tagged =
                    text("tag").filter(|tag| !tag.is_empty() && !tag.contains("{{") && !tag.contains("sha256:"));
                let digest = text("digest").or_else(|| text("sha")).is_some_and(|digest| !digest.is_empty());
                if let (Some(tag), Some(node), false) = (tagged, value.get("tag"), digest)
                    && text("repository").or_else(|| text("name")).is_some()
                {
                    let message = format!("image tag `{}` is not fixed by digest", clip(tag));
                    self.report(Code::MutableTag, node.at, message, "add `digest: sha256:…` beside the tag");
                }
            }
            Value::Sequence(_) => {}
        }
    }

    /// What Argo CD objects must not say, wherever they are.
    fn argo_policies(&mut self, document: &Node<'_>, kind: &str) {
        if kind == "AppProject"
            && let Some(windows) = document.path(&["spec", "syncWindows"])
        {
            let message =
                "syncWindows in Git: they would stop Forge's own syncs, and the run owns this field".to_owned();
            self.report(
                Code::SyncWindowsInGit,
                windows.at,
                message,
                "remove it; promotion windows are `windows` in forge.yaml",
            );
        }
        for keys in [
            &["spec", "syncPolicy", "automated", "allowEmpty"][..],
            &["spec", "template", "spec", "syncPolicy", "automated", "allowEmpty"][..],
        ] {
            if let Some(node) = document.path(keys)
                && node.text() == Some("true")
            {
                let message =
                    "allowEmpty lets automated sync delete everything when a render comes out empty".to_owned();
                self.report(Code::AllowEmpty, node.at, message, "remove it");
            }
        }
    }
}

const HOOK_FIX: &str = "make it an application of its own and write the order as `dependsOn` in graph.yaml";

/// True for a reference with a digest.
fn fixed(reference: &str) -> bool {
    reference.split_once('@').is_some_and(|(_, digest)| digest.parse::<crate::digest::Digest>().is_ok())
}

/// Checks a Helm template, which is text and not YAML.
pub(super) fn template(path: &str, text: &str, hints: Hints, findings: &mut Vec<Finding>) {
    if !hints.has(Hints::HOOK) {
        return;
    }
    for (i, line) in text.lines().enumerate() {
        let at = |column: usize| Position {
            line: u32::try_from(i + 1).unwrap_or(u32::MAX),
            column: u32::try_from(column + 1).unwrap_or(u32::MAX),
        };
        let value_of = |key: &str| {
            let start = line.find(key)?;
            let rest = line.get(start + key.len()..)?.trim_start_matches(['"', '\'']).trim_start().strip_prefix(':')?;
            Some((start, rest.trim().trim_matches(['"', '\''])))
        };
        let mut walk = Walk { path, findings, applications: false };
        if let Some((column, value)) = value_of("helm.sh/hook") {
            walk.helm_hook(at(column), value);
        }
        if let Some((column, value)) = value_of("argocd.argoproj.io/hook")
            && value.split(',').any(|hook| matches!(hook.trim(), "PreSync" | "PostSync"))
        {
            let message = format!("hook `{}` runs around a sync, where order must not live (INV-8)", clip(value));
            walk.report(Code::ArgoHook, at(column), message, HOOK_FIX);
        }
    }
}
