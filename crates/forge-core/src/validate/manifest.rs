//! Rules for manifests, whoever wrote them: hooks, sync waves, images. Secrets have a module of their own.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::embedded::Embedded;
use super::{secrets, suppress};
use crate::code::Code;
use crate::finding::{Finding, Place};
use crate::name::clip;
use crate::yaml::{Dialect, Limits, Node, Position, Resolved, Value, read};

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
    pub(super) const ALLOW: u32 = 64;

    /// Everything that is found by walking a document.
    const STRUCTURE: u32 = Self::HOOK | Self::WAVE | Self::IMAGE | Self::SECRET | Self::PROJECT;

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
    ("pass", Hints::SECRET),
    ("pwd", Hints::SECRET),
    ("token", Hints::SECRET),
    ("apikey", Hints::SECRET),
    ("api_key", Hints::SECRET),
    ("api-key", Hints::SECRET),
    ("accesskey", Hints::SECRET),
    ("access_key", Hints::SECRET),
    ("access-key", Hints::SECRET),
    ("privatekey", Hints::SECRET),
    ("private_key", Hints::SECRET),
    ("private-key", Hints::SECRET),
    ("credentials", Hints::SECRET),
    ("client-key-data", Hints::SECRET),
    ("syncwindows", Hints::PROJECT),
    ("allowempty", Hints::PROJECT),
    (suppress::MARK, Hints::ALLOW),
];

static FINDER: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let words = WORDS.iter().map(|(word, _)| *word).chain(secrets::ANCHORS.iter().copied());
    AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok()
});

/// Finds the hints of a text in one pass.
pub(super) fn hints(text: &str) -> Hints {
    let Some(finder) = FINDER.as_ref() else { return Hints(u32::MAX) };
    // Rules judge what is meant, this looks at what is written: an escape may hide a word.
    let mut hints = if text.contains('\\') { Hints::STRUCTURE } else { 0 };
    for found in finder.find_overlapping_iter(text) {
        hints |= WORDS.get(found.pattern().as_usize()).map_or(Hints::TOKEN, |(_, bit)| *bit);
    }
    Hints(hints)
}

/// The beginnings of secrets in a text, and where they stand.
pub(super) fn anchors(text: &str) -> impl Iterator<Item = (&'static str, usize)> + '_ {
    let found = FINDER.as_ref().into_iter().flat_map(move |finder| finder.find_overlapping_iter(text));
    found.filter_map(|found| {
        let anchor = found.pattern().as_usize().checked_sub(WORDS.len())?;
        Some((*secrets::ANCHORS.get(anchor)?, found.start()))
    })
}

/// Checks one document.
pub(super) fn document(path: &str, document: &Node<'_>, hints: Hints, findings: &mut Vec<Finding>) {
    if hints.has(Hints::HOOK | Hints::WAVE | Hints::IMAGE | Hints::PROJECT) {
        Walk { path, findings, between: [None; 2], embedded: None }.object(document, hints);
    }
    if hints.has(Hints::SECRET) {
        secrets::in_document(path, document, findings);
    }
}

struct Walk<'f> {
    path: &'f str,
    findings: &'f mut Vec<Finding>,
    /// Where the sync waves of an Application and of an ApplicationSet's template stand.
    between: [Option<Position>; 2],
    /// Inside a text.
    embedded: Option<Embedded>,
}

impl Walk<'_> {
    fn report(&mut self, code: Code, at: Position, message: String, fix: &str) {
        let at = self.embedded.map_or(at, |text| text.place(at));
        self.findings.push(Finding::new(code, Place::new(self.path, at), message).with_fix(fix));
    }

    fn object(&mut self, document: &Node<'_>, hints: Hints) {
        let kind = document.text_at(&["kind"]).unwrap_or_default();
        if let (true, Some(items)) = (kind.ends_with("List"), document.get("items").and_then(Node::items)) {
            items.iter().for_each(|item| self.object(item, hints));
            return;
        }
        let argo = document.text_at(&["apiVersion"]).is_some_and(|version| version.starts_with("argoproj.io/"));
        self.between = [None; 2];
        if argo && matches!(kind, "Application" | "ApplicationSet") {
            let annotations = [&["metadata", "annotations"][..], &["spec", "template", "metadata", "annotations"][..]];
            self.between = annotations.map(|keys| Some(document.path(keys)?.get(WAVE)?.at));
        }
        self.node(document);
        if hints.has(Hints::PROJECT) {
            self.argo_policies(document, kind);
        }
    }

    fn node(&mut self, node: &Node<'_>) {
        match &node.value {
            Value::Scalar(_) => {}
            Value::Sequence(items) => items.iter().for_each(|item| self.node(item)),
            Value::Mapping(entries) => {
                for (key, value) in entries {
                    match &*key.text {
                        ARGO_HOOK => self.argo_hook(key.at, value.text().unwrap_or_default()),
                        HELM_HOOK => self.helm_hook(key.at, value.text().unwrap_or_default()),
                        WAVE => self.wave(value.at, value.text().unwrap_or_default()),
                        "image" => self.image(value),
                        "images" => self.kustomize(value),
                        "kustomize" => self.image_overrides(value),
                        "values" => self.values(value),
                        _ => {}
                    }
                    self.node(value);
                }
            }
        }
    }

    fn argo_hook(&mut self, at: Position, text: &str) {
        if text.split(',').any(|hook| matches!(hook.trim(), "PreSync" | "PostSync")) {
            let message = format!("hook `{}` runs around a sync, where order must not live (INV-8)", clip(text));
            self.report(Code::ArgoHook, at, message, HOOK_FIX);
        }
    }

    fn helm_hook(&mut self, at: Position, text: &str) {
        let ordering = |hook: &str| {
            let hook = hook.trim();
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

    fn wave(&mut self, at: Position, text: &str) {
        match text.trim().parse::<i64>() {
            Ok(0) => {}
            Ok(_) if self.between.contains(&Some(at)) => self.report(
                Code::WaveBetweenApplications,
                at,
                "a sync wave does not order one Application before another".to_owned(),
                "remove it and write the order as `dependsOn` in graph.yaml",
            ),
            Ok(-3..=3) => {}
            _ => self.report(
                Code::WaveOutOfRange,
                at,
                format!("sync wave `{}`; -3 to 3 are for order inside one application", clip(text)),
                "split the application and order the parts in graph.yaml",
            ),
        }
    }

    fn image(&mut self, value: &Node<'_>) {
        match &value.value {
            Value::Scalar(_) if value.is_null() => {}
            Value::Scalar(scalar) => self.reference(value.at, scalar.text.trim()),
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
                    self.report(Code::MutableTag, node.at, message, TAG_FIX);
                }
            }
            Value::Sequence(_) => {}
        }
    }

    /// Helm values that an Application holds as a text.
    fn values(&mut self, value: &Node<'_>) {
        let Value::Scalar(scalar) = &value.value else { return };
        if self.embedded.is_some() || !scalar.text.contains('\n') {
            return;
        }
        let stream = read(&scalar.text, Dialect::Kubernetes, Limits::EMBEDDED);
        if stream.problems.is_empty() {
            self.embedded = Some(Embedded::new(value.at, scalar));
            stream.documents.iter().for_each(|document| self.node(document));
            self.embedded = None;
        }
    }

    /// An image as a container names it.
    fn reference(&mut self, at: Position, text: &str) {
        // Variables, pictures and files are no images of containers.
        let image = !text.is_empty()
            && !text.contains(char::is_whitespace)
            && !text.starts_with(['/', '.'])
            && !["{{", "${", "$(", "://"].iter().any(|sign| text.contains(sign));
        if image && !fixed(text) {
            let message = format!("image `{}` is not fixed by digest", clip(text));
            self.report(Code::MutableTag, at, message, "write the digest: `name@sha256:…`");
        }
    }

    /// `images` of a kustomization.
    fn kustomize(&mut self, images: &Node<'_>) {
        for image in images.items().unwrap_or_default() {
            let tag = image.get("newTag").filter(|tag| tag.text().is_some_and(|text| !text.is_empty()));
            if let (Some(tag), None) = (tag, image.text_at(&["digest"])) {
                let message = format!("image tag `{}` is not fixed by digest", clip(tag.text().unwrap_or_default()));
                self.report(Code::MutableTag, tag.at, message, "write `digest: sha256:…` instead of `newTag`");
            }
        }
    }

    /// `kustomize.images` of an Application: `name`, `name=image`.
    fn image_overrides(&mut self, kustomize: &Node<'_>) {
        for image in kustomize.get("images").and_then(Node::items).unwrap_or_default() {
            if let Some(text) = image.text() {
                self.reference(image.at, text.split_once('=').map_or(text, |(_, image)| image));
            }
        }
    }

    /// What Argo CD objects must not say, wherever they are.
    fn argo_policies(&mut self, document: &Node<'_>, kind: &str) {
        if kind == "AppProject"
            && let Some((windows, _)) = document.entry(&["spec", "syncWindows"])
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
                && node.resolve(Dialect::Kubernetes) == Some(Resolved::Bool(true))
            {
                let message =
                    "allowEmpty lets automated sync delete everything when a render comes out empty".to_owned();
                self.report(Code::AllowEmpty, node.at, message, "remove it");
            }
        }
    }
}

const TAG_FIX: &str = "add `digest: sha256:…` if the chart knows it, or write the tag as `tag@sha256:…`";
const ARGO_HOOK: &str = "argocd.argoproj.io/hook";
const HELM_HOOK: &str = "helm.sh/hook";
const WAVE: &str = "argocd.argoproj.io/sync-wave";
const HOOK_FIX: &str = "make it an application of its own and write the order as `dependsOn` in graph.yaml";

/// True for a reference with a digest.
fn fixed(reference: &str) -> bool {
    reference.split_once('@').is_some_and(|(_, digest)| digest.parse::<crate::digest::Digest>().is_ok())
}

/// Checks a Helm template, which is text and not YAML, line by line.
pub(super) fn template(path: &str, text: &str, hints: Hints, findings: &mut Vec<Finding>) {
    if !hints.has(Hints::HOOK | Hints::WAVE | Hints::IMAGE) {
        return;
    }
    let mut walk = Walk { path, findings, between: [None; 2], embedded: None };
    for (line, number) in text.lines().zip(1..) {
        let at = |start: usize| Position {
            line: number,
            column: line.get(..start).map_or(1, |before| u32::try_from(before.chars().count() + 1).unwrap_or(u32::MAX)),
        };
        if let Some(entry) = entry(line, HELM_HOOK) {
            walk.helm_hook(at(entry.key), entry.value);
        }
        if let Some(entry) = entry(line, ARGO_HOOK) {
            walk.argo_hook(at(entry.key), entry.value);
        }
        if let Some(entry) = entry(line, WAVE).filter(|entry| !entry.value.contains('{')) {
            walk.wave(at(entry.start), entry.value);
        }
        if let Some(entry) = entry(line, "image").filter(|entry| !entry.value.contains('{')) {
            walk.reference(at(entry.start), entry.value);
        }
    }
}

/// A key and its value on one line, and where they begin, quotes included.
struct Entry<'l> {
    key: usize,
    start: usize,
    value: &'l str,
}

fn entry<'l>(line: &'l str, key: &str) -> Option<Entry<'l>> {
    let (mut start, _) = line.match_indices(key).find(|(at, _)| {
        let rest = line.get(at + key.len()..).unwrap_or_default().trim_start_matches(['"', '\'']).trim_start();
        let part =
            line.get(..*at).is_some_and(|before| before.ends_with(|c: char| c.is_alphanumeric() || "-_./".contains(c)));
        rest.starts_with(':') && !part
    })?;
    let before = line.get(..start)?;
    if before.trim_start().starts_with('#') || before.contains(" #") {
        return None;
    }
    let rest = line.get(start + key.len()..)?.split_once(':')?.1;
    if before.ends_with(['"', '\'']) {
        start -= 1;
    }
    let value = rest.trim_start();
    let value_start = line.len() - value.len();
    let value = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value.get(1..)?.split(quote).next()?,
        _ if value.starts_with("{{") => value,
        _ => value.split(" #").next()?.split(['}', ']']).next()?,
    };
    Some(Entry { key: start, start: value_start, value: value.trim() })
}
