//! Rights: what an account needs and does not have, by what the API server itself answers.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Finding, Judged, Severity, count};
use crate::name::clip;
use crate::rights::{Answer, Ask, Need};

/// Judges what was answered. `who` is the account, where it is known.
pub fn rights(needs: &[Need], answers: &BTreeMap<Ask, Answer>, who: Option<&str>) -> Judged {
    let who = who.map(clip);
    let account = who.as_deref().map_or("the account".to_owned(), |who| format!("account `{who}`"));
    let (mut missing, mut later, mut unknown) = (Lacks::default(), Lacks::default(), BTreeSet::new());
    for need in needs {
        if whole(&need.asks, answers) || (!need.instead.is_empty() && whole(&need.instead, answers)) {
            continue;
        }
        for ask in &need.asks {
            match answers.get(ask) {
                Some(Answer::Allowed) => {}
                Some(Answer::Denied(_)) => (if need.required { &mut missing } else { &mut later }).add(ask, need.why),
                Some(Answer::Unknown(why)) => {
                    unknown.insert(why.clone());
                }
                None => {
                    unknown.insert(format!("not asked: {} {}", ask.verb(), ask.about()));
                }
            }
        }
    }
    let asked = answers.len();
    let mut judged = Judged::new(Check::Rights, format!("{} asked for, by {account}", count(asked, "right")));
    let subject = who.as_deref().map_or("--user=USER".to_owned(), binding);
    if !missing.0.is_empty() {
        let finding = Finding::new(
            Check::Rights,
            Severity::Blocking,
            format!("{account} lacks {} that it takes to prepare this cluster", count(missing.number(), "right")),
            "bootstrap would stop half way",
            format!(
                "let an administrator give them, or run it as one: `kubectl create clusterrolebinding forge-bootstrap --clusterrole=cluster-admin {subject}`, which may be removed afterwards"
            ),
        );
        judged = judged.with(finding.because(missing.lines()));
    }
    if !later.0.is_empty() {
        let finding = Finding::new(
            Check::Rights,
            Severity::Warning,
            format!("{account} lacks {} that it takes to deploy", count(later.number(), "right")),
            "it can prepare the cluster; a run has to be started by somebody else",
            "nothing, if somebody else deploys; else ask for these rights",
        );
        judged = judged.with(finding.because(later.lines()));
    }
    if !unknown.is_empty() {
        judged
            .findings
            .extend(Judged::failed(Check::Rights, "").findings.into_iter().map(|finding| finding.because(&unknown)));
    }
    judged
}

/// True if all of these are held.
pub fn whole(asks: &[Ask], answers: &BTreeMap<Ask, Answer>) -> bool {
    asks.iter().all(|ask| answers.get(ask) == Some(&Answer::Allowed))
}

/// Rights that are missing: verbs by what they are about and what they are for.
#[derive(Default)]
struct Lacks(BTreeMap<(String, &'static str), BTreeSet<&'static str>>);

impl Lacks {
    fn add(&mut self, ask: &Ask, why: &'static str) {
        self.0.entry((ask.about(), why)).or_default().insert(ask.verb());
    }

    fn number(&self) -> usize {
        let mut all: BTreeSet<(&str, &str)> = BTreeSet::new();
        for ((about, _), verbs) in &self.0 {
            all.extend(verbs.iter().map(|verb| (about.as_str(), *verb)));
        }
        all.len()
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|((about, why), verbs)| {
            let verbs: Vec<&str> = verbs.iter().copied().collect();
            format!("{} {about}: {why}", verbs.join(", "))
        })
    }
}

/// The account as `kubectl create clusterrolebinding` takes it.
fn binding(who: &str) -> String {
    match who.strip_prefix("system:serviceaccount:") {
        Some(account) => format!("--serviceaccount={account}"),
        None => format!("--user={who}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::{Intents, Purpose};
    use crate::rights::{asked, needs};

    fn purpose() -> Purpose {
        Purpose { intents: Intents::existing(), environments: vec!["dev".parse().unwrap()], ..Purpose::default() }
    }

    fn answers(allowed: impl Fn(&Ask) -> bool) -> BTreeMap<Ask, Answer> {
        let answer = |ask: Ask| {
            let answer = if allowed(&ask) { Answer::Allowed } else { Answer::Denied(String::new()) };
            (ask, answer)
        };
        asked(&purpose()).into_iter().map(answer).collect()
    }

    #[test]
    fn who_may_do_everything_lacks_nothing_and_who_may_do_nothing_is_told_what() {
        let needs = needs(&purpose());
        assert!(rights(&needs, &answers(|_| true), Some("admin")).findings.is_empty());
        let judged = rights(&needs, &answers(|_| false), Some("system:serviceaccount:ci:robot"));
        assert_eq!(judged.worst(), Some(Severity::Blocking));
        let finding = &judged.findings[0];
        assert!(finding.fix.contains("--serviceaccount=ci:robot"), "{}", finding.fix);
        let all = finding.evidence.join("\n");
        assert!(all.contains("create, patch clusterworkflowtemplates.argoproj.io cluster-wide: the template"), "{all}");
    }

    #[test]
    fn a_single_right_that_is_missing_is_named_with_what_it_is_for() {
        let needs = needs(&purpose());
        let judged = rights(&needs, &answers(|ask| ask.about() != "services in `argocd`"), None);
        assert_eq!(judged.findings.len(), 1);
        assert_eq!(judged.findings[0].evidence, ["list services in `argocd`: where Argo CD serves"]);
        assert!(judged.findings[0].what.starts_with("the account lacks 1 right"), "{}", judged.findings[0].what);
    }

    #[test]
    fn who_may_give_rights_need_not_have_them_and_who_only_cannot_deploy_is_warned() {
        let needs = needs(&purpose());
        // Workflows are read by the executor alone: who prepares the cluster only gives that right away.
        let without = |ask: &Ask| ask.about() != "workflows.argoproj.io in `argo`";
        assert!(rights(&needs, &answers(without), None).findings.is_empty());
        let neither = |ask: &Ask| without(ask) && ask.verb() != "escalate";
        assert_eq!(rights(&needs, &answers(neither), None).worst(), Some(Severity::Blocking));
        let no_jobs = |ask: &Ask| !ask.about().starts_with("jobs.batch");
        assert_eq!(rights(&needs, &answers(no_jobs), None).worst(), Some(Severity::Warning));
    }

    #[test]
    fn what_is_not_answered_is_not_held_and_not_denied() {
        let needs = needs(&purpose());
        let mut answers = answers(|_| true);
        let first = needs[0].asks[0].clone();
        answers.insert(first.clone(), Answer::Unknown("no answer within 20 s".to_owned()));
        let judged = rights(&needs, &answers, None);
        assert_eq!(judged.worst(), Some(Severity::Failed));
        assert_eq!(judged.findings[0].evidence, ["no answer within 20 s"]);
        answers.remove(&first);
        assert_eq!(rights(&needs, &answers, Some("\u{1b}[2J")).worst(), Some(Severity::Failed));
        assert!(!whole(&[first], &answers));
    }
}
