//! A teardown on a Kubernetes API in memory, for tests beside the code.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use forge_core::duration::Duration;
use forge_core::executor::PvPolicy;
use forge_core::render::{AGENT_TICK, Places};

use super::look::{self, Environment};
use super::{Found, Options, Teardown};
use crate::cluster::Cluster;
use crate::cluster::fake::{Fake, served};
use crate::run::Place;

/// What a teardown of all of `dev` needs.
pub(super) struct World {
    cluster: Cluster,
    places: Places,
    environment: Environment,
    sets: BTreeSet<String>,
    options: Options,
    pub(super) fake: Arc<Mutex<Fake>>,
}

impl World {
    pub(super) async fn new(fake: Fake, policy: PvPolicy) -> Self {
        let (cluster, fake) = served(fake).await;
        let (workflows, argocd) = ("argo".to_owned(), "argocd".to_owned());
        let places = Places { workflows, argocd, image: String::new(), agent_tick: AGENT_TICK };
        let options = Options { policy, targets: Vec::new(), administrator: None };
        Self { cluster, places, environment: look::sample(), sets: BTreeSet::new(), options, fake }
    }

    /// With the finalizers of an object given up.
    pub(super) fn giving_up(mut self, target: &str) -> Self {
        self.options.targets = vec![target.parse().unwrap()];
        self
    }

    /// With so much time.
    pub(super) fn teardown(&self, seconds: u64) -> Teardown<'_> {
        let context = (&self.cluster, &self.places);
        Teardown::new(context, (&self.environment, &self.sets), &self.options, Duration::from_seconds(seconds))
    }

    /// Of which no node is there, and no other environment.
    pub(super) fn found(&self, prepared: bool) -> Found {
        let place = Place { cluster: self.cluster.clone(), places: self.places.clone() };
        Found { place, prepared, seen: look::nothing_seen(true) }
    }

    /// Every request that was no reading.
    pub(super) fn writes(&self) -> Vec<String> {
        self.fake.lock().unwrap().writes.clone()
    }
}
