//! What to do next about a node that waits or failed: one sentence for every reason that there is, with the command that
//! shows more.

use crate::gate::{Health, Rendered, WaitingFor, Why, plugin_code};
use crate::name::{ApplicationId, clean, clip, cut};
use crate::teardown::{self, Waiting};
use crate::truth::Cause;

/// What the commands in an advice name.
#[derive(Debug, Clone, Copy)]
pub struct Spot<'s> {
    /// The node's Application.
    pub application: &'s ApplicationId,
    /// The namespace that it deploys to, where that is known.
    pub destination: Option<&'s str>,
}

impl Spot<'_> {
    fn app_get(self) -> String {
        format!("`argocd app get {}`", self.application)
    }

    fn describe(self) -> String {
        let (namespace, name) = (&self.application.namespace, self.application.name());
        format!("`kubectl -n {namespace} describe application {name}`")
    }

    fn pods(self) -> String {
        match self.destination {
            Some(namespace) => format!("`kubectl -n {} get pods`", clip(namespace)),
            None => "`kubectl get pods` in its namespace".to_owned(),
        }
    }
}

/// What to do about a node that failed.
pub fn advice(why: &Why, spot: Spot<'_>) -> String {
    let again = "then deploy again: proven nodes pass without a sync";
    match why {
        Why::Blocked { by } => format!("nothing here; repair `{by}`, {again}"),
        Why::RunTimeout { predecessor: Some(node) } => {
            format!("see why `{node}` took so long, or raise `timeout` in graph.yaml, {again}")
        }
        Why::RunTimeout { predecessor: None } => {
            format!("raise `timeout` in graph.yaml if the run was only slow, {again}")
        }
        Why::MissingApplication => format!(
            "see whether its ApplicationSet made it: `kubectl -n {} get applicationsets,applications`; push the folder that it is made of, {again}",
            spot.application.namespace
        ),
        Why::ForeignOperation => format!("see who syncs it and stop them: {} names them, {again}", spot.describe()),
        Why::Superseded { .. } => {
            format!(
                "find who else syncs it (a person, a pipeline, an automated sync outside the window): {}, {again}",
                spot.describe()
            )
        }
        Why::SyncNotStarted { .. } => format!(
            "see whether Argo CD's application controller is well: `kubectl -n {} get pods`, {again}",
            spot.application.namespace
        ),
        Why::SyncTimeout { .. } => {
            format!(
                "see which resource the sync hangs on: {}; raise `timeouts.sync` if it is only slow, {again}",
                spot.app_get()
            )
        }
        Why::SyncFailed { .. } => format!("repair what the message names ({}), {again}", spot.app_get()),
        Why::RefreshUnanswered => format!(
            "see whether Argo CD's controller and repo server are well: `kubectl -n {} get pods`, {again}",
            spot.application.namespace
        ),
        Why::Comparison { message } => match plugin_code(message) {
            Some(code) => format!(
                "repair what the plugin names (`forge lint --explain {code}`), {again}; a run makes Argo CD render anew"
            ),
            None => format!("repair what Argo CD cannot read or render: {}, {again}", spot.app_get()),
        },
        Why::Empty => {
            "make sure that its path holds manifests: an Application without resources proves nothing".to_owned()
        }
        Why::CommitMissing { .. } => {
            format!("see whether the commit was pushed to the branch that Argo CD reads: {}, {again}", spot.app_get())
        }
        Why::RepositoryUnread { .. } => {
            format!("see whether the run may read the repository (Secret `forge-git`, network), {again}")
        }
        Why::FolderMoved => {
            "deploy again: its folder has changed since this run began, and only a new run proves what is there now"
                .to_owned()
        }
        Why::RevisionMoved { .. } => {
            "deploy again: its source moved while the run lasted; pin `targetRevision` to keep it still".to_owned()
        }
        Why::NotInSync { .. } => format!(
            "see what differs and who writes it (`argocd app diff {}`); ignore fields that others own, {again}",
            spot.application
        ),
        Why::NotRendered { found: Rendered::Nothing, .. } => format!(
            "see whether its source has `plugin.name: catalyst-forge-cmp` and what renders it: {}, {again}",
            spot.app_get()
        ),
        Why::NotRendered { found: Rendered::Output, .. } => {
            format!(
                "make the plugin of Argo CD the version of this `forge`: `forge bootstrap`, {again}; if it is, somebody changes its output"
            )
        }
        Why::NotRendered { .. } => format!(
            "Argo CD kept manifests of before: deploy again, which makes it render anew; where that does not help, see to its repo server and redis: `kubectl -n {} get pods`",
            spot.application.namespace
        ),
        Why::StaleGeneration { .. } => "see whether the controller of this workload runs and what it logs".to_owned(),
        Why::WrongImage { .. } => {
            format!("see who changes the image (a mutating webhook, another controller): {}, {again}", spot.pods())
        }
        Why::Unhealthy { health: Health::Progressing, .. } => {
            format!(
                "see what does not become ready: {}; raise `timeouts.health` if it is only slow, {again}",
                spot.pods()
            )
        }
        Why::Unhealthy { health: Health::Suspended, .. } => {
            format!("resume what is suspended (a paused Rollout, a CronJob): {}, {again}", spot.app_get())
        }
        Why::Unhealthy { .. } => {
            format!("see what is not well: {} and {}; repair it, {again}", spot.pods(), spot.app_get())
        }
        Why::Flapping { .. } => {
            format!("see why it falls and restarts (crash loops, probes, limits): {}, {again}", spot.pods())
        }
        Why::MissingObject { object } => format!(
            "see what should make {object}; it must be in the tree of this node or of one before it: {}",
            spot.app_get()
        ),
        Why::RuleUnmet { object, .. } => format!("look at {object} and at the rule for it in graph.yaml, {again}"),
        Why::RuleBroken { object, .. } => {
            format!("correct the expression for {object} in graph.yaml (`forge lint` checks it), {again}")
        }
        Why::Removal { why } => removal(why, spot),
    }
}

/// What to do about a node that was to go and did not.
fn removal(why: &teardown::Why, spot: Spot<'_>) -> String {
    const AGAIN: &str = "then tear down again: what is gone stays gone";
    match why {
        teardown::Why::Blocked { by } => format!("nothing here; see to `{by}`, {AGAIN}"),
        teardown::Why::RunTimeout { dependent: Some(node) } => {
            format!("see what keeps `{node}`, {AGAIN}; --timeout gives the whole run longer")
        }
        teardown::Why::RunTimeout { dependent: None } => format!("give the run longer with --timeout, {AGAIN}"),
        teardown::Why::Operation => {
            format!("see who syncs it, and let it end or stop it: {}, {AGAIN}", spot.describe())
        }
        teardown::Why::NotDeleted { .. } => format!(
            "see whether Argo CD is well and lets `forge-teardown` get and delete: `kubectl -n {} get pods`, {AGAIN}",
            spot.application.namespace
        ),
        teardown::Why::Stuck { remnants, .. } | teardown::Why::Left { remnants, .. } => match remnants.first() {
            Some(remnant) if remnant.unread.is_some() => {
                format!("use an account that may read {}, {AGAIN}", clip(&remnant.object))
            }
            Some(remnant) if remnant.deleting.is_some() => {
                let object = clip(&remnant.object);
                format!("see to what owns the finalizer; if it is gone for good: --release-finalizer {object}, {AGAIN}")
            }
            Some(remnant) => format!("see who keeps {} and remove it, {AGAIN}", clip(&remnant.object)),
            None => format!("see what Argo CD waits for: {}, {AGAIN}", spot.app_get()),
        },
        teardown::Why::NotCleared => format!("let it be conducted to its end, {AGAIN}"),
        teardown::Why::Recreated { .. } => {
            format!("stop what makes it: {} says what that is, {AGAIN}", spot.describe())
        }
    }
}

/// What to do about a node that waits; mostly nothing, and then it says what is awaited.
pub fn advice_waiting(on: &WaitingFor, spot: Spot<'_>) -> String {
    match on {
        WaitingFor::Predecessor { node } => format!("nothing here; it starts when `{node}` is proven"),
        WaitingFor::Application => format!(
            "see whether its ApplicationSet makes it: `kubectl -n {} get applicationsets,applications`",
            spot.application.namespace
        ),
        WaitingFor::ForeignOperation => {
            format!("wait, or stop the other operation: {} says who asked for it", spot.describe())
        }
        WaitingFor::ForeignTermination { .. } => {
            format!("nothing yet; its end was asked for. If it does not end: {}", spot.describe())
        }
        WaitingFor::Refresh { .. } => format!(
            "nothing yet; if it lasts, see whether Argo CD's controller is well: `kubectl -n {} get pods`",
            spot.application.namespace
        ),
        WaitingFor::SyncRequest { .. } | WaitingFor::Tree | WaitingFor::Receipt => {
            "nothing; the run does this next".to_owned()
        }
        WaitingFor::SyncStart { .. } => format!(
            "nothing yet; if it lasts, see whether Argo CD's controller is well: `kubectl -n {} get pods`",
            spot.application.namespace
        ),
        WaitingFor::Operation { .. } => format!("nothing yet; {} shows what the sync is at", spot.app_get()),
        WaitingFor::Backoff { .. } => {
            format!("repair what the message names while it is tried again: {}", spot.app_get())
        }
        WaitingFor::Comparison { message } => match plugin_code(message) {
            Some(code) => format!(
                "repair what the plugin names (`forge lint --explain {code}`); the run makes Argo CD render anew by itself"
            ),
            None => format!("repair what Argo CD cannot read or render: {}", spot.app_get()),
        },
        WaitingFor::Commit { .. } => "see whether the commit was pushed to the branch that Argo CD reads".to_owned(),
        WaitingFor::Repository { .. } => {
            "nothing yet; if it lasts, see whether the run may read the repository (Secret `forge-git`, network)"
                .to_owned()
        }
        WaitingFor::InSync { .. } => {
            format!("see what differs and who writes it: `argocd app diff {}`", spot.application)
        }
        WaitingFor::Render { .. } => {
            format!("nothing yet; the run makes Argo CD render anew, once: {} shows it", spot.app_get())
        }
        WaitingFor::Generation { .. } => "see whether the controller of this workload runs and what it logs".to_owned(),
        WaitingFor::Image { .. } => format!("see whether the new pods start: {}", spot.pods()),
        WaitingFor::Health { health: Health::Progressing, .. } => {
            format!("nothing yet; {} shows what is not ready", spot.pods())
        }
        WaitingFor::Health { health: Health::Suspended, .. } => {
            format!("resume what is suspended (a paused Rollout, a CronJob): {}", spot.app_get())
        }
        WaitingFor::Health { .. } => format!("see what is not well: {} and {}", spot.pods(), spot.app_get()),
        WaitingFor::Settling { .. } => {
            format!("nothing yet, it must stay Healthy for a while; {} shows restarts", spot.pods())
        }
        WaitingFor::Object { object, .. } => format!("see what should make {object}: {}", spot.app_get()),
        WaitingFor::Rule { object, .. } => format!("look at {object} and at the rule for it in graph.yaml"),
        WaitingFor::Removal { on } => match on {
            Waiting::Dependent { node } => format!("nothing here; it goes when `{node}` is gone"),
            Waiting::Request | Waiting::Clearance => "nothing; the run does this next".to_owned(),
            Waiting::Shown { .. } => format!(
                "nothing yet; if it lasts, see whether Argo CD is well: `kubectl -n {} get pods`",
                spot.application.namespace
            ),
            Waiting::Operation => format!("wait, or stop the operation: {} says who asked for it", spot.describe()),
            Waiting::Deletion { remnants, .. } | Waiting::Members { remnants } if remnants.is_empty() => {
                format!("nothing yet; {} shows what is left of it", spot.app_get())
            }
            Waiting::Deletion { .. } | Waiting::Members { .. } => {
                "nothing yet; if it lasts, see to what owns the finalizer that is named".to_owned()
            }
        },
    }
}

/// What to do about something that `validate` found. `spot` is that of the node, where it is about one.
pub fn advice_cause(cause: &Cause, environment: &str, spot: Option<Spot<'_>>) -> String {
    let deploy = format!("`forge platform deploy --environment {}`", clip(environment));
    let get = |fallback: &str| spot.map_or_else(|| fallback.to_owned(), Spot::app_get);
    match (cause, spot) {
        (Cause::Failed(why), Some(spot)) => advice(why, spot),
        (Cause::Waits(on), Some(spot)) => advice_waiting(on, spot),
        (Cause::Failed(_) | Cause::Waits(_), None) => "see what `forge status` says about it".to_owned(),
        (Cause::Syncing { .. }, _) => format!("nothing yet; {} shows what the sync is at", get("`argocd app list`")),
        (Cause::SyncHangs { .. }, Some(spot)) => format!(
            "see what it waits for: {}; `argocd app terminate-op {}` ends it, then {deploy}",
            spot.app_get(),
            spot.application
        ),
        (Cause::SyncHangs { .. }, None) => format!("see what it waits for: `argocd app list`; end it, then {deploy}"),
        (Cause::Going { .. }, Some(spot)) => format!(
            "see who deletes it, and which finalizer keeps it: {}; once it is gone, {deploy}",
            spot.describe()
        ),
        (Cause::Going { .. }, None) => format!("see who deletes it; once it is gone, {deploy}"),
        (Cause::SyncFailed { .. }, _) => {
            format!("repair what the message names ({}), then {deploy}", get("`argocd app list`"))
        }
        (Cause::Drift { .. }, Some(spot)) => format!(
            "see what differs and who writes it: `argocd app diff {}`; {deploy} brings it back in order",
            spot.application
        ),
        (Cause::Drift { .. }, None) => format!("see what differs and who writes it; {deploy} brings it back"),
        (Cause::NotCompared { .. } | Cause::OldCommit { .. }, Some(spot)) => format!(
            "wait for the next comparison, or ask for one: `argocd app get {} --refresh`; if it stays old, `kubectl -n {} get pods`",
            spot.application, spot.application.namespace
        ),
        (Cause::NotCompared { .. } | Cause::OldCommit { .. }, None) => "wait for the next comparison".to_owned(),
        (Cause::LaterCommit | Cause::OldCheckout { .. }, _) => {
            "`git pull`, then validate again: what Git holds now is what counts".to_owned()
        }
        (Cause::WrongDigest { container, .. }, _) => format!(
            "see who changed it: {}; then replace the pods of {} (`kubectl rollout restart`)",
            spot.map_or_else(|| "`kubectl get pods`".to_owned(), Spot::pods),
            clip(container.workload())
        ),
        (Cause::Extra { .. }, _) => format!(
            "add it to graph.yaml, or remove it: `forge platform teardown --environment {}` with its scope",
            clip(environment)
        ),
        (Cause::NotRead { .. }, _) => {
            "give the account the right that the message names (docs/guides/validate.md has a ClusterRole), or validate again"
                .to_owned()
        }
        (Cause::Rule { fix: Some(fix), .. }, _) => cut(&clean(fix), 250).into_owned(),
        (Cause::Rule { code, .. }, _) => format!("`forge lint --explain {code}` says what to do"),
        (Cause::Claimed { .. }, _) => "let one of the two manage it: take it out of the manifests of the other".to_owned(),
        (Cause::Controller { .. } | Cause::NotServed { .. }, _) => {
            "`kubectl get pods` in its namespace says why; where Forge installed it, `forge bootstrap` puts it right"
                .to_owned()
        }
        (Cause::NoProject, _) => {
            format!("`forge bootstrap --environment {}` makes it", clip(environment))
        }
        (Cause::Held { .. }, _) => format!("{deploy}: it proves what is left and empties the window"),
        (Cause::ConfigMissing | Cause::ConfigDiffers { .. }, _) => {
            format!("see whether `{}-config` is synced; {deploy} brings it up to date", clip(environment))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample;

    #[test]
    fn there_is_advice_for_everything_that_validate_finds() {
        let application: ApplicationId = "argocd/dev-shop-api".parse().unwrap();
        let spot = Spot { application: &application, destination: Some("shop-api") };
        for cause in crate::truth::every_cause() {
            for spot in [None, Some(spot)] {
                let text = advice_cause(&cause, "dev", spot);
                assert!(text.len() > 20 && text.len() < 260, "{cause:?}: {text}");
                assert!(!text.contains(char::is_control) && !text.ends_with('.'), "{cause:?}: {text}");
            }
        }
    }

    #[test]
    fn there_is_advice_for_every_reason_to_fail_and_to_wait() {
        let application: ApplicationId = "argocd/dev-shop-api".parse().unwrap();
        for destination in [None, Some("shop\u{1b}-api")] {
            let spot = Spot { application: &application, destination };
            let failed = sample::every_why().into_iter().map(|why| (format!("{why:?}"), advice(&why, spot)));
            let waits = sample::every_wait().into_iter().map(|on| (format!("{on:?}"), advice_waiting(&on, spot)));
            for (reason, text) in failed.chain(waits) {
                assert!(text.len() > 20 && text.len() < 260, "{reason}: {text}");
                assert!(!text.contains(char::is_control) && !text.ends_with('.'), "{reason}: {text}");
            }
        }
    }
}
