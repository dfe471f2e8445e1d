//! Answers to Argo Workflows, gathered. In a run that is cut into bands nothing of the Workflow waits for a node's answer, and
//! whatever the controller hears makes it go through the whole Workflow and write it again; so it hears of many nodes at
//! a time, and what that costs does not grow faster than the graph (docs/adr/0025).

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The answers of one run.
pub(super) struct Gather {
    /// How long they are gathered; nothing where each is given at once.
    span: Option<Duration>,
    /// Until when those that wait do.
    until: Mutex<Instant>,
    now: Notify,
}

impl Gather {
    pub(super) fn new(span: Option<Duration>) -> Self {
        Self { span, until: Mutex::new(Instant::now()), now: Notify::new() }
    }

    /// Returns when an answer may be given: with all that wait, at the end of the span that the first of them began.
    pub(super) async fn wait(&self) {
        let Some(span) = self.span else { return };
        let mut released = std::pin::pin!(self.now.notified());
        // From here on it hears of a release, although nobody polls it yet.
        released.as_mut().enable();
        let until = {
            let mut until = self.until();
            let now = Instant::now();
            if *until <= now {
                *until = now + span;
            }
            *until
        };
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = released => {}
        }
    }

    /// All that wait are given now: the controller hears of something anyway, or nothing more comes.
    pub(super) fn release(&self) {
        *self.until() = Instant::now();
        self.now.notify_waiters();
    }

    fn until(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.until.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(3600);

    /// Whether an answer is given at once.
    async fn is_given(gather: &Gather) -> bool {
        tokio::select! {
            biased;
            () = gather.wait() => true,
            () = tokio::task::yield_now() => false,
        }
    }

    #[tokio::test]
    async fn answers_that_come_within_a_span_are_given_at_its_end_and_the_next_begins_another() {
        let gather = Gather::new(Some(SPAN));
        assert!(!is_given(&gather).await);
        let until = *gather.until();
        assert!(!is_given(&gather).await);
        assert_eq!(*gather.until(), until, "it waits with the first");
        // The span is over.
        *gather.until() = Instant::now();
        assert!(!is_given(&gather).await);
        assert!(*gather.until() > until);
    }

    #[tokio::test]
    async fn a_release_gives_what_waits_at_once_and_what_comes_later_gathers_again() {
        let gather = Gather::new(Some(SPAN));
        tokio::join!(gather.wait(), gather.wait(), async { gather.release() });
        assert!(!is_given(&gather).await);
    }

    #[tokio::test]
    async fn nothing_is_gathered_where_the_workflow_waits_for_answers() {
        assert!(is_given(&Gather::new(None)).await);
    }
}
