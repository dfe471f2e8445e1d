//! The one asynchronous runtime of a command.

use forge_core::code::Code;
use forge_core::failure::Failure;

/// Runs a future to its end.
pub(crate) fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    // One provider for every TLS connection; a second call of this finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Code::CannotWrite, format!("failed to start threads: {error}")).hint("try again")
    })?;
    Ok(runtime.block_on(future))
}
