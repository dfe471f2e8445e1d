//! The one place that starts an async runtime: commands are plain functions, what they ask of a cluster is not.

use std::future::Future;

use forge_core::code::Code;
use forge_core::failure::Failure;

/// Runs a future to its end on a runtime of its own.
///
/// # Errors
/// When the machine gives no threads for it.
pub(crate) fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Code::CannotWrite, format!("failed to start threads for the network: {error}"))
    })?;
    Ok(runtime.block_on(future))
}
