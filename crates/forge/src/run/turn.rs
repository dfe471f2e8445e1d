//! The turn of a Job that an event made: it takes its seats, waits, and runs `executor deploy` when the turn is its own
//! (docs/adr/0020). The step is `forge_core::run::step`'s; here is what it takes to do it.
//!
//! The executor is a process of its own, so that it begins, and reads the branch, after the seat of who waits is free.
//! It knows nothing of seats, and keeps to the Lease of the environment as every run does.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::EnvironmentName;
use forge_core::render::{ENVIRONMENT_LABEL, MANAGED_BY};
use forge_core::run::{Seat, Seats, Sitting, Step, again, step};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::lease::{self, LASTS, RENEWED};
use crate::cluster::{Cluster, ClusterError, path};

/// Between two looks at seats that others have.
const AGAIN: Duration = Duration::from_secs(2);

/// A Job that an event made.
pub(crate) struct Event<'e> {
    pub(crate) cluster: &'e Cluster,
    /// Where Leases are.
    pub(crate) namespace: &'e str,
    pub(crate) environment: &'e EnvironmentName,
    /// The name of the Job, which is the same after a restart.
    pub(crate) name: &'e str,
}

/// How it came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// This Job waits already and deploys what ours was made for.
    Left(String),
    /// The executor ended.
    Ended(Exit),
    /// The executor was killed, so this pod has to end too: another one goes on, with the seat that it has.
    Killed(String),
}

/// Takes the turn, runs the executor, and gives the turn back. `say` hears what is waited for.
///
/// # Errors
/// When the cluster refuses, or the executor cannot be started. What asking again may help with is asked again.
pub(crate) async fn conduct(event: &Event<'_>, mut say: impl FnMut(&str)) -> Result<Outcome, Failure> {
    if let Some(waiting) = event.seated(&mut say).await? {
        return Ok(Outcome::Left(waiting));
    }
    let mut conflicts = 0;
    let ended = loop {
        let status = event.executed(&mut say).await?;
        let Some(ended) = exit(status) else { return Ok(Outcome::Killed(status.to_string())) };
        if ended != Exit::Conflict {
            break ended;
        }
        // Where a person was faster it is tried again afterwards. The turn stays, so whoever comes now waits behind it.
        if event.waited(&mut say).await? {
            conflicts = 0;
            continue;
        }
        // He may have ended before we looked, and nobody tries this Job again: it goes on itself.
        conflicts += 1;
        if !again(conflicts) {
            break ended;
        }
        say("the executor met somebody else, and nobody is at work now; trying again");
        event.paused(conflicts, &mut say).await?;
    };
    // Who does not stand up is taken for gone when nothing is heard of it.
    if let Err(error) = event.give(Seat::Turn).await {
        say(&format!("note: the turn is not given back: {error}"));
    }
    Ok(Outcome::Ended(ended))
}

impl Event<'_> {
    fn collection(&self) -> String {
        path::named("coordination.k8s.io", "v1", self.namespace, "leases")
    }

    fn path(&self, seat: Seat) -> String {
        path::object(&self.collection(), &seat.lease(self.environment))
    }

    /// Goes on until the turn is ours; gives who waits in our place, if somebody does.
    async fn seated(&self, say: &mut impl FnMut(&str)) -> Result<Option<String>, Failure> {
        let mut said = String::new();
        loop {
            let done = match self.looked().await {
                Ok((seats, leases)) => match step(self.name, &seats, Timestamp::now()) {
                    Step::Deploy => return Ok(None),
                    Step::Leave(waiting) => return Ok(Some(waiting)),
                    Step::Take(seat) => self.take(seat, leases.of(seat)).await,
                    Step::Give(seat) => self.give(seat).await,
                    Step::Wait(busy) => self.stays(format!("waiting for {busy}"), AGAIN, &mut said, say).await,
                    Step::Gather(rest) => {
                        let why = "the last turn began just now; waiting for what is pushed with this".to_owned();
                        self.stays(why, rest.unsigned_abs().min(AGAIN), &mut said, say).await
                    }
                },
                Err(error) => Err(error),
            };
            unless_fatal(done, say).await?;
        }
    }

    /// Lets time pass on the seat of who waits, and says why, once.
    async fn stays(
        &self,
        why: String,
        pause: Duration,
        said: &mut String,
        say: &mut impl FnMut(&str),
    ) -> Result<(), ClusterError> {
        if why != *said {
            say(&why);
            *said = why;
        }
        tokio::time::sleep(pause).await;
        self.renew(Seat::Next).await
    }

    /// The run that is in progress, if one is.
    async fn run(&self) -> Result<Option<String>, ClusterError> {
        let path = path::object(&self.collection(), &format!("forge-{}", self.environment));
        let holder = self.cluster.get(&path).await?.as_ref().and_then(lease::holder);
        Ok(holder.filter(|holder| holder.alive).map(|holder| holder.run))
    }

    /// Waits until no run is in progress, and keeps the turn meanwhile; whether there was one.
    async fn waited(&self, say: &mut impl FnMut(&str)) -> Result<bool, Failure> {
        let mut was = false;
        loop {
            let done = match self.run().await {
                Ok(None) => return Ok(was),
                Ok(Some(run)) => {
                    if !was {
                        say(&format!("waiting for {run}"));
                        was = true;
                    }
                    tokio::time::sleep(AGAIN).await;
                    self.renew(Seat::Turn).await
                }
                Err(error) => Err(error),
            };
            unless_fatal(done, say).await?;
        }
    }

    /// Lets time pass, the more the more often it does, and keeps the turn meanwhile.
    async fn paused(&self, times: u32, say: &mut impl FnMut(&str)) -> Result<(), Failure> {
        for _ in 0..times {
            tokio::time::sleep(RENEWED).await;
            unless_fatal(self.renew(Seat::Turn).await, say).await?;
        }
        Ok(())
    }

    async fn looked(&self) -> Result<(Seats, Leases), ClusterError> {
        let next = self.cluster.get(&self.path(Seat::Next)).await?;
        let turn = self.cluster.get(&self.path(Seat::Turn)).await?;
        let run = self.run().await?;
        let seats = Seats {
            next: next.as_ref().and_then(sitting),
            turn: turn.as_ref().and_then(sitting),
            taken: turn.as_ref().and_then(taken),
            run,
        };
        Ok((seats, Leases { next, turn }))
    }

    /// Takes a seat that is as it was read; a conflict where it no longer is.
    async fn take(&self, seat: Seat, read: Option<&Value>) -> Result<(), ClusterError> {
        let now = lease::micro(Timestamp::now());
        let spec = json!({
            "holderIdentity": self.name, "leaseDurationSeconds": LASTS, "acquireTime": now, "renewTime": now,
        });
        match read {
            Some(lease) => {
                let version = lease.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
                let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
                self.cluster.merge(&self.path(seat), &patch).await?;
            }
            None => {
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {
                        "name": seat.lease(self.environment),
                        "labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: self.environment},
                    },
                    "spec": spec,
                });
                self.cluster.create(&self.collection(), &lease).await?;
            }
        }
        Ok(())
    }

    /// Says that a seat is still ours, if it is.
    async fn renew(&self, seat: Seat) -> Result<(), ClusterError> {
        self.change(seat, &json!({"renewTime": lease::micro(Timestamp::now())})).await
    }

    /// Stands up from a seat, if it is ours.
    async fn give(&self, seat: Seat) -> Result<(), ClusterError> {
        self.change(seat, &json!({"holderIdentity": ""})).await
    }

    async fn change(&self, seat: Seat, spec: &Value) -> Result<(), ClusterError> {
        let path = self.path(seat);
        let Some(lease) = self.cluster.get(&path).await? else { return Ok(()) };
        if sitting(&lease).is_none_or(|sitting| sitting.name != self.name) {
            return Ok(());
        }
        let version = lease.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        self.cluster.merge(&path, &patch).await?;
        Ok(())
    }

    /// Runs `executor deploy` to its end, and keeps the turn meanwhile.
    async fn executed(&self, say: &mut impl FnMut(&str)) -> Result<ExitStatus, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(Code::CannotWrite, format!("failed to run the executor: {error}"))
                .hint("the image must be one of Forge's own")
        };
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        // Inputs are those of this container (SPEC.md section 5).
        command.arg0("executor").arg("deploy");
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let mut ended = tokio::task::spawn_blocking(move || child.wait());
        loop {
            match tokio::time::timeout(RENEWED, &mut ended).await {
                Ok(Ok(status)) => return status.map_err(|error| failed(&error)),
                Ok(Err(error)) => return Err(failed(&error)),
                // Whoever takes this for gone keeps to the Lease of the environment, as the run does.
                Err(_) => {
                    if let Err(error) = self.renew(Seat::Turn).await {
                        say(&format!("note: the turn is not renewed: {error}"));
                    }
                }
            }
        }
    }
}

/// Whether to go on: what asking again may help with is asked again, after a pause.
async fn unless_fatal(done: Result<(), ClusterError>, say: &mut impl FnMut(&str)) -> Result<(), Failure> {
    match done {
        Ok(()) => Ok(()),
        Err(error) if error.is_transient() || error.is_conflict() => {
            if !error.is_conflict() {
                say(&format!("trying again: {error}"));
            }
            tokio::time::sleep(AGAIN).await;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// The code with which the executor ended by itself; none if something ended it.
fn exit(status: ExitStatus) -> Option<Exit> {
    let all = [Exit::Done, Exit::Findings, Exit::Partial, Exit::Invalid, Exit::Timeout, Exit::Conflict, Exit::Policy];
    let code = usize::try_from(status.code()?).ok()?;
    all.get(code).copied()
}

/// Who has a seat.
fn sitting(lease: &Value) -> Option<Sitting> {
    lease::holder(lease).map(|holder| Sitting { name: holder.run, alive: holder.alive })
}

/// When a seat was taken last: who stands up leaves that.
fn taken(lease: &Value) -> Option<Timestamp> {
    lease.pointer("/spec/acquireTime").and_then(Value::as_str)?.parse().ok()
}

/// The Leases of the seats, as they were read.
struct Leases {
    next: Option<Value>,
    turn: Option<Value>,
}

impl Leases {
    fn of(&self, seat: Seat) -> Option<&Value> {
        match seat {
            Seat::Next => self.next.as_ref(),
            Seat::Turn => self.turn.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn only_a_code_of_ours_ends_a_job() {
        assert_eq!(exit(ExitStatus::from_raw(0)), Some(Exit::Done));
        assert_eq!(exit(ExitStatus::from_raw(5 << 8)), Some(Exit::Conflict));
        assert_eq!(exit(ExitStatus::from_raw(6 << 8)), Some(Exit::Policy));
        // Another code, and a signal.
        assert_eq!(exit(ExitStatus::from_raw(101 << 8)), None);
        assert_eq!(exit(ExitStatus::from_raw(9)), None);
    }

    #[test]
    fn a_seat_that_was_given_back_is_nobodys_and_one_that_was_not_renewed_is_not_alive() {
        let lease = |name: &str, renewed: &str| json!({"spec": {"holderIdentity": name, "renewTime": renewed}});
        let now = lease::micro(Timestamp::now());
        assert_eq!(sitting(&lease("", &now)), None);
        assert_eq!(sitting(&lease("a", &now)), Some(Sitting { name: "a".to_owned(), alive: true }));
        let gone = Sitting { name: "a".to_owned(), alive: false };
        assert_eq!(sitting(&lease("a", "2020-01-01T00:00:00.000000Z")), Some(gone));
    }

    #[test]
    fn when_a_seat_was_taken_is_known_also_where_it_was_given_back() {
        let at: Timestamp = "2026-01-02T03:04:05.678901Z".parse().unwrap();
        let lease = json!({"spec": {"holderIdentity": "", "acquireTime": lease::micro(at), "renewTime": "no time"}});
        assert_eq!((sitting(&lease), taken(&lease)), (None, Some(at)));
        assert_eq!(taken(&json!({"spec": {"holderIdentity": "a"}})), None);
    }
}
