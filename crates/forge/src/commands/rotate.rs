//! `forge rotate`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::duration::Duration;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::render::ARGOCD_SECRET;
use forge_core::token;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::Serialize;
use serde_json::Value;

use crate::account::{self, Content, Stored};
use crate::argocd::{self, ACCOUNT};
use crate::cluster::{Cluster, ClusterArguments, secret_text};
use crate::interrupt::Interrupts;
use crate::output::{Output, Paint};
use crate::runtime::block_on;

/// How often a person is told what it waits for.
const TOLD: std::time::Duration = std::time::Duration::from_secs(1);

/// Replace the token of the Argo CD account `forge`, and delete every other one
///
/// Makes a token that ends, proves that Argo CD accepts it, stores it in Secret `forge-argocd`, and waits until every pod of a
/// run has had time to read it: they do so while they run, so a run in progress goes on. Then every other token of the account
/// is deleted. The account makes its tokens itself; once its token has ended, an administrator must: by the initial password
/// where that is still there, else by --argocd-admin-token-file.
///
/// There is never a moment without a token that works. Interrupted, the old ones go on: run it again.
///
/// Exit codes: 0 done, 1 interrupted or failed, 3 no token can be made, 5 somebody else replaces it at the same time, 6 not
/// permitted.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How long the new token is good for
    #[arg(long, value_name = "DURATION", default_value_t = token::LIFETIME)]
    token_lifetime: Duration,
    /// How long the others go on after the new one was stored: the time that a kubelet takes to bring a changed Secret into
    /// running pods
    #[arg(long, value_name = "DURATION", default_value_t = token::GRACE)]
    grace: Duration,
    /// A file with a token of an Argo CD account that may make tokens of the account `forge`, where it cannot do so itself
    #[arg(long, value_name = "FILE")]
    argocd_admin_token_file: Option<PathBuf>,
    /// The namespace of Argo CD
    #[arg(long, value_name = "NAMESPACE", env = "FORGE_ARGOCD_NAMESPACE", default_value = "argocd")]
    argocd_namespace: String,
    /// Only say what would be done; nothing is written
    #[arg(long)]
    dry_run: bool,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// What was done, or would be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rotation {
    account: &'static str,
    server: String,
    made_by: &'static str,
    dry_run: bool,
    /// Of the new token; nothing where none was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    grace: Duration,
    /// Ids that are gone, or would go.
    deleted: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let lifetime = account::lifetime(arguments.token_lifetime, arguments.grace)?;
    let administrator = arguments.argocd_admin_token_file.as_deref().map(account::token_in).transpose()?;
    let rotation = block_on(async {
        let cluster = Cluster::connect(&arguments.cluster).await?;
        let mut interrupts = Interrupts::listen();
        rotate(&cluster, arguments, lifetime, administrator.as_ref(), &mut interrupts, output).await
    })??;
    let Some(rotation) = rotation else {
        output.say("\ninterrupted; every token that worked goes on working: run it again");
        return Ok(Exit::Findings);
    };
    let text = match arguments.output {
        Format::Json => format!("{:#}\n", serde_json::to_value(&rotation).unwrap_or_default()),
        Format::Text => text(&rotation),
    };
    output.data(&text)?;
    Ok(Exit::Done)
}

/// Nothing where it was interrupted.
async fn rotate(
    cluster: &Cluster,
    arguments: &Arguments,
    lifetime: Duration,
    administrator: Option<&SecretString>,
    interrupts: &mut Interrupts,
    output: &mut Output<'_>,
) -> Result<Option<Rotation>, Failure> {
    let workflows = arguments.cluster.workflows_namespace.as_str();
    let secret = cluster.get(&account::secret_path(workflows)).await?;
    let (Some(secret), Some(stored)) = (&secret, secret.as_ref().and_then(Stored::read)) else {
        return Err(Failure::new(
            Code::NotBootstrapped,
            format!("no Secret `{ARGOCD_SECRET}` with a token in `{workflows}`"),
        )
        .hint("`forge bootstrap` makes the account's token"));
    };
    let argocd = account::behind(cluster, &stored)?;
    let accepted = account::accepts(&argocd, ACCOUNT).await?;
    let minter = account::minter(cluster, &arguments.argocd_namespace, &argocd, accepted, administrator).await?;
    let mut rotation = Rotation {
        account: ACCOUNT,
        server: stored.server.clone(),
        made_by: minter.who,
        dry_run: arguments.dry_run,
        id: None,
        expires: None,
        grace: arguments.grace,
        deleted: Vec::new(),
    };
    if arguments.dry_run {
        let all = minter.tokens().await?;
        rotation.deleted = all.into_iter().map(|token| token.id).collect();
        return Ok(Some(rotation));
    }
    let (id, token) = minter.mint(lifetime).await?;
    let stays = Timestamp::now().checked_add(arguments.grace.as_jiff()).ok();
    let certificates = certificates(secret);
    let content =
        Content { server: &stored.server, token: &token, certificates: certificates.as_deref(), retire_after: stays };
    if let Err(failure) = account::store(cluster, workflows, Some(secret), &content).await {
        minter.take_back(&id).await;
        return Err(failure);
    }
    output.say(&format!(
        "{} a new token, made by {}, is stored in Secret {ARGOCD_SECRET}",
        output.paint(Paint::Good, "ok"),
        minter.who
    ));
    if !waited(arguments.grace, interrupts, output).await {
        return Ok(None);
    }
    rotation.deleted = account::retire(cluster, workflows, &id).await?;
    rotation.expires = argocd::claims(&token).and_then(|claims| claims.token.expires);
    rotation.id = Some(id);
    Ok(Some(rotation))
}

/// Argo CD's certificate as it is stored: a rotation does not touch it.
fn certificates(secret: &Value) -> Option<String> {
    secret_text(secret, argocd::CERTIFICATE)
}

/// Waits for the grace, and says so. False where it was interrupted.
async fn waited(grace: Duration, interrupts: &mut Interrupts, output: &mut Output<'_>) -> bool {
    if grace == Duration::ZERO {
        return true;
    }
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(grace.seconds());
    if !output.live {
        output.say(&format!("waiting {grace} for every pod to read it; the old ones go on until then"));
    }
    let whole = loop {
        let left = end.saturating_duration_since(tokio::time::Instant::now());
        if left.is_zero() {
            break true;
        }
        if output.live {
            let shown = Duration::from_seconds(left.as_secs().saturating_add(1));
            output.raw(&format!("\r\u{1b}[Kwaiting {shown} for every pod to read it; the old ones go on until then"));
        }
        tokio::select! {
            () = tokio::time::sleep(left.min(TOLD)) => {}
            () = interrupts.heard() => break false,
        }
    };
    if output.live {
        output.raw("\r\u{1b}[K");
    }
    whole
}

fn text(rotation: &Rotation) -> String {
    let count = rotation.deleted.len();
    if rotation.dry_run {
        let Rotation { made_by, grace, .. } = rotation;
        let mut text = format!("{made_by} would make a token; {grace} after it is stored these would be deleted:\n");
        for id in &rotation.deleted {
            text.push_str(&format!("  {}\n", forge_core::name::clip(id)));
        }
        if count == 0 {
            text.push_str("  none: the account has no token\n");
        }
        return text;
    }
    let until = rotation.expires.map_or_else(String::new, |expires| format!(", good until {expires}"));
    let others = if count == 1 { "1 other is deleted".to_owned() } else { format!("{count} others are deleted") };
    let id = rotation.id.as_deref().unwrap_or_default();
    format!("token {id} of the Argo CD account `{ACCOUNT}`{until}; {others}\n")
}
