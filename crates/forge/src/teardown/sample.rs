//! A teardown on a Kubernetes API in memory, for tests beside the code.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use forge_core::duration::Duration;
use forge_core::executor::PvPolicy;
use forge_core::render::{AGENT_TICK, Places};

use super::look::{self, Environment};
use super::{Options, Teardown};
use crate::cluster::Cluster;
use crate::cluster::fake::{Fake, served};

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

    /// With so much time.
    pub(super) fn teardown(&self, seconds: u64) -> Teardown<'_> {
        let context = (&self.cluster, &self.places);
        Teardown::new(context, (&self.environment, &self.sets), &self.options, Duration::from_seconds(seconds))
    }

    /// Every request that was no reading.
    pub(super) fn writes(&self) -> Vec<String> {
        self.fake.lock().unwrap().writes.clone()
    }
}
