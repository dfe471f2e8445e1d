//! Being told to stop, by a person or by Kubernetes. Once this listens, the process no longer ends by itself: whoever uses it
//! has something to put away first.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Interrupts and requests to terminate since it was made; none is lost while nobody waits.
pub(crate) struct Interrupts {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    /// One was heard.
    told: bool,
}

impl Interrupts {
    /// Listens from now on.
    pub(crate) fn listen() -> Self {
        let terminate = signal(SignalKind::terminate()).ok();
        Self { terminate, ..Self::keyboard() }
    }

    /// Listens to a person only: whoever shuts a machine down does not mean a run that goes on elsewhere.
    pub(crate) fn keyboard() -> Self {
        Self { interrupt: signal(SignalKind::interrupt()).ok(), terminate: None, told: false }
    }

    /// Listens to nobody.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self { interrupt: None, terminate: None, told: false }
    }

    /// Was told to stop before anybody looked.
    #[cfg(test)]
    pub(crate) fn already() -> Self {
        Self { told: true, ..Self::none() }
    }

    /// Ends when told to stop. Safe to drop and ask again.
    pub(crate) async fn heard(&mut self) {
        tokio::select! {
            () = one(&mut self.interrupt) => {}
            () = one(&mut self.terminate) => {}
        }
        self.told = true;
    }

    /// Whether it was told to stop until now, by whomever that was heard.
    pub(crate) async fn told(&mut self) -> bool {
        self.told || tokio::time::timeout(Duration::ZERO, self.heard()).await.is_ok()
    }
}

async fn one(signal: &mut Option<Signal>) {
    let heard = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    // What cannot be listened to is never heard.
    if heard.is_none() {
        std::future::pending::<()>().await;
    }
}
