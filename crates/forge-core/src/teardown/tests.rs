//! The state table of [`decide`], and what must hold beyond it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::code::Class;
use crate::gate::{self, Timeouts};
use crate::name::NodeId;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn node(name: &str) -> NodeId {
    name.parse().unwrap()
}

fn wanted() -> Wanted {
    Wanted {
        node: node("shop/db"),
        application: "argocd/dev-shop-db".parse().unwrap(),
        uid: Some("1".to_owned()),
        dependents: vec![node("shop/api"), node("shop/web")],
        timeouts: Timeouts { sync: Duration::from_seconds(60), health: Duration::from_seconds(600) },
    }
}

/// Everything that depends on it is gone, and the run lasts an hour.
fn observed() -> Observed {
    Observed {
        dependents: BTreeMap::from([
            (node("shop/api"), DependentState::Gone),
            (node("shop/web"), DependentState::Gone),
        ]),
        deadline: at(3600),
        progress: Progress::default(),
        application: Some(application()),
        clearance: None,
    }
}

fn application() -> ApplicationState {
    ApplicationState { uid: "1".to_owned(), ..ApplicationState::default() }
}

fn remnant() -> Remnant {
    let live = json!({"metadata": {"deletionTimestamp": at(0).to_string(), "finalizers": ["x.example.com/y"]}});
    Remnant::read("Widget/shop/main", &live)
}

fn on(decision: &Decision) -> &Waiting {
    match decision {
        Decision::Wait(wait) => &wait.on,
        other => panic!("{other:?}"),
    }
}

fn why(decision: &Decision) -> &Why {
    match decision {
        Decision::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_asked_to_go_while_something_that_depends_on_it_exists() {
    for state in [Some(DependentState::Living), None] {
        let mut seen = observed();
        seen.dependents.remove(&node("shop/web"));
        seen.dependents.extend(state.map(|state| (node("shop/web"), state)));
        // Whatever else is true of it, also that it is gone already.
        for application in [Some(application()), None] {
            seen.application = application;
            seen.clearance = Some(Clearance::default());
            let decision = decide(&wanted(), &seen, at(1));
            assert_eq!(*on(&decision), Waiting::Dependent { node: node("shop/web") });
        }
    }
}

#[test]
fn what_depends_on_it_and_did_not_go_stops_it() {
    let mut seen = observed();
    seen.dependents.insert(node("shop/web"), DependentState::Failed);
    let decision = decide(&wanted(), &seen, at(1));
    assert_eq!(*why(&decision), Why::Blocked { by: node("shop/web") });
    // In the record it is told as every other node that is blocked.
    let stored: gate::Decision = decision.into();
    assert!(matches!(&stored, gate::Decision::Failed(f) if f.why == gate::Why::Blocked { by: node("shop/web") }));
}

#[test]
fn it_is_asked_for_once_and_then_watched() {
    let mut seen = observed();
    assert_eq!(*on(&decide(&wanted(), &seen, at(1))), Waiting::Request);
    seen.progress.requested = Some(at(1));
    let decision = decide(&wanted(), &seen, at(2));
    assert_eq!(*on(&decision), Waiting::Shown { message: String::new() });
    let Decision::Wait(wait) = decision else { panic!() };
    assert_eq!((wait.until, wait.since), (at(61), Some(at(1))));
    // A refusal is told while it is tried again, and is the reason in the end.
    seen.progress.refused = Some("permission denied".to_owned());
    assert!(on(&decide(&wanted(), &seen, at(2))).to_string().ends_with("permission denied"));
    let decision = decide(&wanted(), &seen, at(61));
    assert_eq!(why(&decision).class(), Class::Policy);
    seen.progress.refused = None;
    assert_eq!(why(&decide(&wanted(), &seen, at(61))).class(), Class::Timeout);
}

#[test]
fn an_operation_comes_first_and_has_its_time() {
    let mut seen = observed();
    seen.application = Some(ApplicationState { in_flight: true, ..application() });
    assert_eq!(*on(&decide(&wanted(), &seen, at(1))), Waiting::Operation);
    seen.progress = remember(&wanted(), &seen, at(1));
    assert_eq!(seen.progress.busy_since, Some(at(1)));
    assert_eq!(*why(&decide(&wanted(), &seen, at(61))), Why::Operation);
    // One that ended and another one that began later has its own time.
    seen.application = Some(application());
    seen.progress = remember(&wanted(), &seen, at(50));
    assert_eq!(seen.progress.busy_since, None);
}

#[test]
fn what_argo_cd_does_not_finish_is_named_with_what_keeps_it_and_for_how_long() {
    let mut seen = observed();
    seen.application = Some(ApplicationState {
        deleting: true,
        remnants: vec![remnant()],
        error: Some("no such project".to_owned()),
        ..application()
    });
    seen.progress.requested = Some(at(1));
    seen.progress = remember(&wanted(), &seen, at(5));
    assert_eq!(seen.progress.deleting_since, Some(at(5)));
    let decision = decide(&wanted(), &seen, at(30));
    let text = on(&decision).to_string();
    assert!(text.contains("Widget/shop/main, kept by `x.example.com/y` of an unknown owner"), "{text}");
    assert!(text.contains("no such project"), "{text}");
    let decision = decide(&wanted(), &seen, at(605));
    let text = why(&decision).to_string();
    assert!(text.ends_with("of an unknown owner for 10m5s"), "{text}");
    assert_eq!((why(&decision).class(), why(&decision).remnants().len()), (Class::Timeout, 1));
}

#[test]
fn gone_is_only_what_somebody_looked_for_and_found_nothing_of() {
    let mut seen = observed();
    seen.application = None;
    seen.progress.requested = Some(at(1));
    seen.progress = remember(&wanted(), &seen, at(10));
    assert_eq!(*on(&decide(&wanted(), &seen, at(11))), Waiting::Clearance);
    assert_eq!(*why(&decide(&wanted(), &seen, at(610))), Why::NotCleared);
    seen.clearance = Some(Clearance { left: vec![remnant()], kept: Vec::new() });
    assert_eq!(*on(&decide(&wanted(), &seen, at(11))), Waiting::Members { remnants: vec![remnant()] });
    let decision = decide(&wanted(), &seen, at(610));
    assert!(why(&decision).to_string().starts_with("it is gone, and this is not: Widget/shop/main"), "{decision:?}");
    let kept = vec![Kept { object: "Secret/shop/x".to_owned(), why: "its chart keeps it".to_owned() }];
    seen.clearance = Some(Clearance { left: Vec::new(), kept: kept.clone() });
    let decision = decide(&wanted(), &seen, at(11));
    assert_eq!(decision, Decision::Gone(Removed { asked: true, kept }));
    let stored: gate::Decision = decision.into();
    let text = serde_json::to_string(&stored).unwrap();
    assert_eq!(serde_json::from_str::<gate::Decision>(&text).unwrap(), stored);
}

#[test]
fn one_that_was_not_there_is_gone_without_a_request() {
    let (mut wanted, mut seen) = (wanted(), observed());
    wanted.uid = None;
    seen.application = None;
    seen.clearance = Some(Clearance::default());
    let Decision::Gone(removed) = decide(&wanted, &seen, at(1)) else { panic!() };
    assert_eq!((removed.asked, removed.to_string().as_str()), (false, "nothing had to be removed"));
}

#[test]
fn another_application_of_its_name_is_never_deleted() {
    let (mut wanted, mut seen) = (wanted(), observed());
    let creator = Some("ApplicationSet dev-apps".to_owned());
    for (uid, found) in [(Some("1"), "2"), (None, "2")] {
        wanted.uid = uid.map(str::to_owned);
        seen.application = Some(ApplicationState { uid: found.to_owned(), creator: creator.clone(), ..application() });
        let decision = decide(&wanted, &seen, at(1));
        assert_eq!(why(&decision).to_string(), "it was made again by ApplicationSet dev-apps");
        assert_eq!(why(&decision).class(), Class::Conflict);
    }
}

#[test]
fn one_that_comes_back_starts_its_time_anew() {
    let mut seen = observed();
    seen.application = None;
    seen.progress = remember(&wanted(), &seen, at(10));
    assert_eq!(seen.progress.gone_at, Some(at(10)));
    seen.application = Some(application());
    seen.progress = remember(&wanted(), &seen, at(20));
    assert_eq!(seen.progress.gone_at, None);
}

#[test]
fn the_end_of_the_run_is_the_end_of_every_wait() {
    let mut seen = observed();
    assert_eq!(*why(&decide(&wanted(), &seen, at(3600))), Why::RunTimeout { dependent: None });
    seen.dependents.insert(node("shop/api"), DependentState::Living);
    let decision = decide(&wanted(), &seen, at(3600));
    assert_eq!(*why(&decision), Why::RunTimeout { dependent: Some(node("shop/api")) });
    assert!(why(&decision).to_string().contains("`shop/api`, which depends on it"));
}

fn states() -> impl Strategy<Value = Option<DependentState>> {
    prop_oneof![
        Just(None::<DependentState>),
        Just(Some(DependentState::Gone)),
        Just(Some(DependentState::Living)),
        Just(Some(DependentState::Failed)),
    ]
}

fn applications() -> impl Strategy<Value = Option<ApplicationState>> {
    let one =
        (prop_oneof![Just("1"), Just("2")], any::<bool>(), any::<bool>()).prop_map(|(uid, deleting, in_flight)| {
            ApplicationState { uid: uid.to_owned(), deleting, in_flight, ..ApplicationState::default() }
        });
    prop_oneof![Just(None::<ApplicationState>), one.prop_map(Some)]
}

fn clearances() -> impl Strategy<Value = Option<Clearance>> {
    prop_oneof![
        Just(None::<Clearance>),
        Just(Some(Clearance::default())),
        Just(Some(Clearance { left: vec![remnant()], kept: Vec::new() })),
    ]
}

proptest! {
    /// INV-6, and that nothing hangs: whatever is seen, a request is due only when every dependent is gone, gone is only what
    /// was looked for, a wait ends later than now and never after the run, and remembering twice is remembering once.
    #[test]
    fn whatever_is_seen_the_order_holds_and_every_wait_ends(
        api in states(), web in states(), application in applications(), clearance in clearances(),
        requested in proptest::option::of(0i64..4000), second in 0i64..5000,
    ) {
        let mut seen = Observed { application, clearance, ..observed() };
        seen.dependents.clear();
        for (name, state) in [("shop/api", api), ("shop/web", web)] {
            if let Some(state) = state {
                seen.dependents.insert(node(name), state);
            }
        }
        seen.progress.requested = requested.map(at);
        let now = at(second);
        seen.progress = remember(&wanted(), &seen, now);
        prop_assert_eq!(&remember(&wanted(), &seen, at(second + 1)), &seen.progress);
        let all_gone = [api, web].iter().all(|state| *state == Some(DependentState::Gone));
        match decide(&wanted(), &seen, now) {
            Decision::Gone(_) => {
                prop_assert!(all_gone && seen.application.is_none());
                prop_assert!(seen.clearance.as_ref().is_some_and(|clearance| clearance.left.is_empty()));
            }
            Decision::Wait(wait) => {
                prop_assert!(wait.until > now && wait.until <= seen.deadline);
                if wait.on == Waiting::Request {
                    prop_assert!(all_gone);
                    prop_assert!(seen.application.as_ref().is_some_and(|found| found.uid == "1" && !found.deleting));
                }
            }
            Decision::Failed(why) => prop_assert!(!why.to_string().is_empty()),
        }
    }
}
