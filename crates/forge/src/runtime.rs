//! The one asynchronous runtime of a command.

use forge_core::code::Code;
use forge_core::failure::Failure;
use tokio::runtime::Runtime;

/// Runs a future to its end.
pub(crate) fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    Ok(runtime()?.block_on(future))
}

/// Runs a future to its end, and waits for nothing that it began in threads: looking up a name that nobody resolves may
/// take longer than whoever asked has time. For a process that ends afterwards.
pub(crate) fn block_on_and_leave<F: Future>(future: F) -> Result<F::Output, Failure> {
    let runtime = runtime()?;
    let output = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(output)
}

fn runtime() -> Result<Runtime, Failure> {
    // One provider for every TLS connection; a second call of this finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime
        .map_err(|error| Failure::new(Code::CannotWrite, format!("failed to start threads: {error}")).hint("try again"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_was_begun_in_a_thread_is_left_behind() {
        let began = Instant::now();
        let (_never, ends) = std::sync::mpsc::channel::<()>();
        let given = block_on_and_leave(async {
            drop(tokio::task::spawn_blocking(move || ends.recv_timeout(Duration::from_secs(120))));
            7
        });
        assert_eq!(given.unwrap(), 7);
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}
