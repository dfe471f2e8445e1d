//! What conducting comes to on a cluster in memory.

use std::sync::Mutex;

use axum::http::Uri;
use forge_core::render::Places;
use secrecy::SecretString;

use super::workflow::MOST_IN_VAIN;
use super::*;
use crate::cluster::fake::{Fake, served};
use crate::run::sample;

const WORKFLOW: &str = "forge-r-1";

/// A run of two nodes, of which one waits for the other.
fn two() -> Arc<RunPlan> {
    Arc::new(sample::chain(&["db", "api"]))
}

/// A cluster that holds these Workflows.
async fn cluster(workflows: Vec<Value>) -> (Place, Arc<Mutex<Fake>>) {
    let mut fake = Fake::default();
    for workflow in workflows {
        fake.put(&path::argo("argo", "workflows"), workflow);
    }
    let (cluster, fake) = served(fake).await;
    (Place { cluster, places: Places::default() }, fake)
}

fn argocd(address: &str) -> ArgoCd {
    ArgoCd::at(address, SecretString::from("t".to_owned()), None).unwrap()
}

/// Whoever conducts a run whose Workflow is in this phase, as far as that is followed.
fn conductor<'c>(place: &'c Place, argocd: &'c ArgoCd, plan: &Arc<RunPlan>, phase: &str) -> Conductor<'c> {
    let mut header = Header::new(plan, Timestamp::now());
    header.workflow = Some(WORKFLOW.to_owned());
    let mut conductor = Conductor::new(place, argocd, plan.clone(), header, None);
    follows(&mut conductor, WORKFLOW, phase);
    conductor
}

fn follows(conductor: &mut Conductor<'_>, name: &str, phase: &str) {
    let followed = json!({"metadata": {"name": name, "namespace": "argo"}, "status": {"phase": phase}});
    conductor.workflows.insert(format!("argo/{name}"), followed);
}

/// Somebody wants the run to stop.
fn wishes(conductor: &mut Conductor<'_>, who: &str) {
    let name = record_name(&conductor.plan.run, 0);
    let wish = json!({"metadata": {"name": name, "resourceVersion": "1"}, "data": {CANCEL_KEY: who}});
    conductor.config_maps.insert(format!("argo/{name}"), wish);
}

fn object(name: &str) -> String {
    path::object(&path::argo("argo", "workflows"), name)
}

#[tokio::test]
async fn a_cancelled_run_ends_without_a_controller_also_where_its_workflow_was_told_to_stop_before() {
    let plan = two();
    let mut told = render::workflow(&plan, &Places::default(), 0).unwrap();
    told["spec"]["shutdown"] = json!("Terminate");
    told["status"] = json!({"phase": "Running"});
    let (place, fake) = cluster(vec![told]).await;
    let argocd = argocd("http://127.0.0.1:1");
    let mut conductor = conductor(&place, &argocd, &plan, "Running");
    wishes(&mut conductor, "me");
    assert!(conductor.advance().await.unwrap().is_none());
    // What somebody asked for is not made less.
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
    let asked = conductor.stopping.expect("since when it stops");
    assert!(conductor.advance().await.unwrap().is_none());
    assert_eq!(conductor.stopping, Some(asked));
    conductor.stopping = asked.checked_sub(STOPPING + Duration::from_secs(1));
    let (verdict, message) = conductor.advance().await.unwrap().unwrap();
    assert_eq!((verdict, message.as_deref()), (Verdict::Cancelled, Some("cancelled by me")));
}

#[tokio::test]
async fn a_run_that_the_deadline_of_its_job_ended_has_timed_out_and_nobody_cancelled_it() {
    let plan = two();
    let mut stopped = render::workflow(&plan, &Places::default(), 0).unwrap();
    stopped["spec"]["shutdown"] = json!("Stop");
    stopped["status"] = json!({"phase": "Failed"});
    let (place, _) = cluster(vec![stopped]).await;
    let argocd = argocd("http://127.0.0.1:1");
    let mut conductor = conductor(&place, &argocd, &plan, "Failed");
    wishes(&mut conductor, job::DEADLINE);
    let (verdict, message) = conductor.advance().await.unwrap().unwrap();
    let why = "the run took too long: the deadline of its Job ended it";
    assert_eq!((verdict, message.as_deref()), (Verdict::TimedOut, Some(why)));
    // Also where there is no Workflow.
    conductor.workflows.clear();
    assert_eq!(conductor.advance().await.unwrap().unwrap().0, Verdict::TimedOut);
}

#[tokio::test]
async fn what_a_lost_workflow_left_open_goes_on_in_another_one_of_the_same_run_until_that_leads_nowhere() {
    let plan = two();
    let (place, fake) = cluster(Vec::new()).await;
    let argocd = argocd("http://127.0.0.1:1");
    let mut conductor = conductor(&place, &argocd, &plan, "Error");
    let mut record = conductor.standing().record.clone();
    assert!(conductor.lost(&record, "the agent failed").await.unwrap().is_none());
    assert_eq!(conductor.in_vain, Some((0, 1)));
    let stored = |path: &str| fake.lock().unwrap().objects.get(path).cloned().unwrap();
    assert_eq!(stored(&object("forge-r-1-r1"))["metadata"]["labels"][render::RUN_LABEL], "r-1");
    let header = path::object(&path::config_maps("argo"), &record_name(&plan.run, 0));
    let header: Header = serde_json::from_str(stored(&header)["data"][HEADER_KEY].as_str().unwrap()).unwrap();
    assert_eq!((header.resubmitted, header.workflow.as_deref()), (1, Some("forge-r-1-r1")));
    // A node that got further makes it worth trying anew.
    follows(&mut conductor, "forge-r-1-r1", "Error");
    let entry = json!({
        "node": "argocd/db", "since": "2026-11-16T12:00:00Z",
        "decision": {"type": "wait", "on": {"type": "application"}, "until": "2026-11-16T12:09:00Z"},
    });
    record.entries.insert("argocd/db".parse().unwrap(), serde_json::from_value(entry).unwrap());
    assert!(conductor.lost(&record, "the agent failed").await.unwrap().is_none());
    assert_eq!((conductor.in_vain, conductor.header.resubmitted), (Some((1, 1)), 2));
    conductor.in_vain = Some((1, MOST_IN_VAIN - 1));
    let (verdict, message) = conductor.lost(&record, "the agent failed").await.unwrap().unwrap();
    let message = message.unwrap();
    assert!(message.ends_with("failed 3 times, the last time with: the agent failed"), "{message}");
    assert_eq!((verdict, conductor.header.resubmitted), (Verdict::Failed, 2));
}

#[tokio::test]
async fn a_workflow_that_left_nodes_out_is_replaced_by_another_one_and_its_agent_is_not_to_blame() {
    let plan = two();
    let mut workflow = render::workflow(&plan, &Places::default(), 0).unwrap();
    let task = |place: usize| workflow["spec"]["templates"][0]["dag"]["tasks"][place]["name"].clone();
    let nodes = json!({
        "1": {"displayName": task(0), "phase": "Error"}, "2": {"displayName": task(1), "phase": "Omitted"},
    });
    workflow["status"] = json!({"phase": "Running", "nodes": nodes});
    let (place, fake) = cluster(vec![workflow]).await;
    let argocd = argocd("http://127.0.0.1:1");
    let mut conductor = conductor(&place, &argocd, &plan, "Running");
    let labels = json!({"workflows.argoproj.io/workflow": WORKFLOW});
    let pod = json!({"metadata": {"name": "forge-r-1-agent", "labels": labels}, "status": {"phase": "Running"}});
    conductor.pods.insert("argo/forge-r-1-agent".to_owned(), pod.clone());
    let a_minute_ago = Instant::now().into_std().checked_sub(Duration::from_secs(60)).unwrap();
    let views = conductor.standing().views.clone();
    assert!(conductor.supervisor.stuck(&views, &[pod], a_minute_ago).is_none());
    conductor.tick().await.unwrap();
    assert!(conductor.stranded);
    // Argo Workflows ends what is told to stop.
    let ends = async {
        loop {
            let told = fake.lock().unwrap().objects.get(&object(WORKFLOW)).cloned().unwrap();
            if told["spec"]["shutdown"] == "Stop" {
                let mut ended = told;
                ended["metadata"]["labels"]["workflows.argoproj.io/phase"] = json!("Failed");
                fake.lock().unwrap().put(&path::argo("argo", "workflows"), ended);
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let both = async { tokio::join!(conductor.advance(), ends) };
    let (advanced, ()) = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
    assert!(advanced.unwrap().is_none());
    assert_eq!((conductor.header.resubmitted, conductor.header.agents_replaced), (1, 0));
    let fake = fake.lock().unwrap();
    assert!(fake.objects.contains_key(&object("forge-r-1-r1")));
    assert!(!fake.writes.iter().any(|write| write.starts_with("DELETE")), "{:?}", fake.writes);
}

/// An Argo CD that never comes to an end, and what it was asked for.
async fn endless() -> (ArgoCd, watch::Receiver<BTreeSet<String>>) {
    let (asked, seen) = watch::channel(BTreeSet::new());
    let router = axum::Router::new().fallback(move |uri: Uri| async move {
        asked.send_modify(|all| {
            all.insert(uri.path().to_owned());
        });
        std::future::pending::<&'static str>().await
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let argocd = argocd(&format!("http://{}", listener.local_addr().unwrap()));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (argocd, seen)
}

#[tokio::test]
async fn at_its_end_a_run_asks_about_everything_that_left_the_window_and_waits_for_no_comparison() {
    let names: Vec<String> = (0..4 * REFRESHES).map(|number| format!("n{number}")).collect();
    let plan = Arc::new(sample::chain(&names));
    let (place, _) = cluster(Vec::new()).await;
    let (argocd, asked) = endless().await;
    let mut conductor = conductor(&place, &argocd, &plan, "Running");
    let nodes: Vec<NodeId> = plan.nodes().map(|node| node.id.clone()).collect();
    conductor.refresh(&nodes);
    conductor.refreshed().await;
    assert_eq!(asked.borrow().len(), names.len());
}

#[tokio::test]
async fn what_fell_at_the_end_is_compared_at_once_however_much_has_left_the_window() {
    let mut names: Vec<String> = (0..4 * REFRESHES).map(|number| format!("n{number}")).collect();
    names.push("fell".to_owned());
    let plan = Arc::new(sample::chain(&names));
    let (place, _) = cluster(Vec::new()).await;
    let (argocd, mut asked) = endless().await;
    let mut conductor = conductor(&place, &argocd, &plan, "Running");
    let nodes: Vec<NodeId> = plan.nodes().map(|node| node.id.clone()).collect();
    let (fell, left) = nodes.split_last().unwrap();
    conductor.refresh(left);
    let patience = Duration::from_secs(20);
    let busy = asked.wait_for(|asked| asked.len() == REFRESHES);
    drop(tokio::time::timeout(patience, busy).await.unwrap().unwrap());
    conductor.relook(std::slice::from_ref(fell));
    let compared = asked.wait_for(|asked| asked.iter().any(|path| path.ends_with("/fell")));
    drop(tokio::time::timeout(patience, compared).await.unwrap().unwrap());
}
