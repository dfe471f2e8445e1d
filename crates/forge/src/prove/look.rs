//! What was read of one node since its last operation: a comparison that was asked for, the tree, the repository.

use std::time::{Duration, Instant};

use forge_core::gate::{ApplicationState, Content, Folder, GitContent, ObjectRef, RenderReceipt, Tree, Wanted};
use jiff::Timestamp;
use tokio::task::JoinHandle;

use crate::argocd::Application;
use crate::cluster::ClusterError;

/// How long an answer of the repository that did not help counts before it is asked again.
const REPOSITORY_AGAIN: Duration = Duration::from_secs(5);

/// What was read.
#[derive(Default)]
pub(super) struct Look {
    asking: Option<JoinHandle<Result<Application, ClusterError>>>,
    /// It is to be rendered anew for it.
    anew: bool,
    /// When it was asked for.
    asked_at: Option<Timestamp>,
    /// The version of the Application that answered.
    answered: Option<u64>,
    tree: Option<Tree>,
    /// What the plugin says it rendered; nothing inside where there is no receipt.
    render: Option<Option<RenderReceipt>>,
    git: Option<(Option<String>, GitContent, Instant)>,
}

impl Drop for Look {
    fn drop(&mut self) {
        if let Some(asking) = &self.asking {
            asking.abort();
        }
    }
}

impl Look {
    /// Asks for a comparison; its answer comes by [`Look::answer`].
    pub(super) fn ask(&mut self, request: impl Future<Output = Result<Application, ClusterError>> + Send + 'static) {
        self.asking = Some(tokio::spawn(request));
        self.anew = false;
        self.asked_at = Some(Timestamp::now());
    }

    /// The same where everything is rendered anew for it.
    pub(super) fn ask_anew(
        &mut self,
        request: impl Future<Output = Result<Application, ClusterError>> + Send + 'static,
    ) {
        self.ask(request);
        self.anew = true;
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    pub(super) fn answered(&self) -> Option<u64> {
        self.answered
    }

    /// The answer to what was asked, and whether it was rendered anew for it; waits for ever where nothing was asked.
    pub(super) async fn answer(&mut self) -> Option<(Application, bool)> {
        let Some(asking) = &mut self.asking else { return std::future::pending().await };
        let answer = asking.await;
        self.asking = None;
        match answer {
            Ok(Ok(application)) => {
                self.answered = Some(application.version);
                self.tree = None;
                // What is live changes with a sync only, and is read again with the tree.
                if self.anew {
                    self.render = None;
                }
                Some((application, self.anew))
            }
            // Argo CD restarts, or the Application is gone: the caller looks again and asks again.
            _ => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                None
            }
        }
    }

    /// Forgets what was read before an operation was seen finished. True where that changes anything.
    pub(super) fn forget(&mut self) -> bool {
        let read = self.tree.is_some() || self.render.is_some();
        let known = self.asking.is_some() || self.answered.is_some() || read;
        if let Some(asking) = self.asking.take() {
            asking.abort();
        }
        self.answered = None;
        self.tree = None;
        self.render = None;
        known
    }

    pub(super) fn keep_tree(&mut self, tree: Tree) {
        self.tree = Some(tree);
    }

    pub(super) fn keep_render(&mut self, render: Option<RenderReceipt>) {
        self.render = Some(render);
    }

    pub(super) fn forget_tree(&mut self) {
        self.tree = None;
    }

    pub(super) fn keep_git(&mut self, revision: Option<String>, content: GitContent) {
        self.git = Some((revision, content, Instant::now()));
    }

    /// It was asked about this revision a moment ago, and did not know.
    pub(super) fn git_is_recent(&self, revision: &str) -> bool {
        matches!(&self.git, Some((of, _, at)) if of.as_deref() == Some(revision) && at.elapsed() < REPOSITORY_AGAIN)
    }

    /// The objects that a node requires or has rules for.
    pub(super) fn objects(wanted: &Wanted) -> Vec<ObjectRef> {
        let mut objects: Vec<ObjectRef> = wanted.requires.clone();
        objects.extend(wanted.health.iter().map(|rule| rule.object.clone()));
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    /// An Application and everything that was read of it.
    pub(super) fn state(&self, application: &Application, wanted: &Wanted) -> ApplicationState {
        ApplicationState {
            operation: application.operation.clone(),
            refresh: self.freshness(application),
            refresh_asked_at: self.asked_at,
            sync: application.sync,
            health: application.health,
            unwell: application.unwell.clone(),
            conditions: application.conditions.clone(),
            resources: application.resources.len(),
            revisions: application.revisions.clone(),
            git: self.git(application, wanted),
            render: self.render.clone().flatten(),
            render_unread: self.render.is_none() && is_release(wanted),
            tree: self.tree.clone(),
        }
    }

    fn git(&self, application: &Application, wanted: &Wanted) -> Option<GitContent> {
        let (Content::Git { commit } | Content::Release { commit, .. }) = &wanted.content else { return None };
        let revision = application.revisions.first()?;
        // The same commit is the same content; nothing has to be read for that.
        if revision == commit.as_str() {
            return Some(GitContent { contains_commit: true, folder: Folder::Same, error: None });
        }
        let (of, content, _) = self.git.as_ref()?;
        (of.as_ref() == Some(revision)).then(|| content.clone())
    }
}

/// It is deployed by the plugin, which says what it rendered.
pub(super) fn is_release(wanted: &Wanted) -> bool {
    matches!(wanted.content, Content::Release { .. })
}
