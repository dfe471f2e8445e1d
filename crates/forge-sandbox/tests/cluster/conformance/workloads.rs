//! [Workloads](https://kubernetes.io/docs/concepts/workloads/): what runs, how it is looked at, and what it is held to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use forge_testkit::sandbox::eventually;
use serde_json::{Value, json};

use super::dns::{self, Kind, Record};
use super::toolbox::{Toolbox, tools};
use super::{
    Follow, LIMIT, assert_refused, condition, config_map, deployment, http, image, namespace, pod, sample, sample_once,
    service, text, until,
};

#[test]
fn a_deployment_pulled_by_digest_becomes_available_and_can_be_looked_into() {
    let namespace = namespace("deployment");
    namespace.apply(&[deployment("web", 1, &sample(&[("NAME", "looked-into")]))]);
    namespace.wait("deployment/web", "condition=Available", LIMIT);
    let pods: Value = serde_json::from_str(&namespace.kubectl(&["get", "pods", "-o", "json"])).unwrap();
    let pod = &pods["items"][0];
    let (_, digest) =
        image("forge/sample").split_once('@').map(|(name, digest)| (name.to_owned(), digest.to_owned())).unwrap();
    assert!(text(pod, "/status/containerStatuses/0/imageID").ends_with(&format!("@{digest}")), "{pod}");

    let log = namespace.kubectl(&["logs", "deployment/web"]);
    assert!(log.contains("looked-into listens on port 8080") && log.contains("looked-into is ready"), "{log}");
    let forward = Follow::start(&namespace, &["port-forward", "--address=127.0.0.1", "deployment/web", ":http"]);
    let line = forward.line();
    let port =
        line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let port: u16 = port.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
    let answer = eventually("the pod answers", LIMIT, || http(IpAddr::V4(Ipv4Addr::LOCALHOST), port, "/"));
    assert_eq!((answer.status, answer.field("pod").as_str()), (200, text(pod, "/metadata/name")));
}

#[test]
fn a_rolling_update_never_stops_serving() {
    let namespace = namespace("rolling");
    let web = |version: &str| {
        let mut spec = sample(&[("VERSION", version), ("GRACE", "10s")]);
        spec["terminationGracePeriodSeconds"] = json!(20);
        let mut web = deployment("web", 2, &spec);
        web["spec"]["strategy"] = json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
        web
    };
    namespace.apply(&[web("one"), service("web", &json!({}))]);
    namespace.wait("deployment/web", "condition=Available", LIMIT);
    let address: IpAddr = text(&namespace.get("service", "web"), "/spec/clusterIP").parse().unwrap();
    eventually("the service answers", LIMIT, || http(address, 80, "/"));

    let (stop, stopped) = mpsc::channel::<()>();
    let answers = thread::scope(|scope| {
        let client = scope.spawn(move || {
            let mut answers: BTreeMap<Result<String, String>, u32> = BTreeMap::new();
            while stopped.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
                *answers.entry(http(address, 80, "/").map(|answer| answer.field("version"))).or_default() += 1;
            }
            answers
        });
        namespace.apply(&[web("two")]);
        let ended = namespace.try_kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"], None);
        assert!(ended.code == 0, "{}", ended.stderr);
        eventually("only new pods answer", LIMIT, || {
            let answers = (0..20).map(|_| http(address, 80, "/").map(|answer| answer.field("version")));
            let answers: BTreeSet<String> = answers.collect::<Result<_, _>>()?;
            if answers == BTreeSet::from(["two".to_owned()]) { Ok(()) } else { Err(format!("{answers:?}")) }
        });
        drop(stop);
        client.join().unwrap()
    });
    let said: Vec<_> = answers.keys().cloned().collect();
    assert_eq!(said, [Ok("one".to_owned()), Ok("two".to_owned())], "{answers:?}");
}

#[test]
fn a_stateful_set_keeps_names_order_and_data() {
    let namespace = namespace("stateful");
    let mut spec = tools("echo \"$HOSTNAME\" >> /data/log && exec sleep infinity");
    spec["restartPolicy"] = json!("Always");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    spec["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["test", "-s", "/data/log"]}, "periodSeconds": 1});
    namespace.apply(&[
        service("store", &json!({"clusterIP": "None"})),
        json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "store"},
            "spec": {
                "replicas": 2,
                "serviceName": "store",
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
                }],
            },
        }),
    ]);
    namespace.wait("statefulset/store", "jsonpath={.status.readyReplicas}=2", LIMIT);
    let (zero, one) = (namespace.get("pod", "store-0"), namespace.get("pod", "store-1"));
    let conditions = zero["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
    assert!(text(ready, "/lastTransitionTime") <= text(&one, "/metadata/creationTimestamp"), "{ready} {one}");
    let claim = namespace.get("pvc", "data-store-0");
    assert_eq!((text(&claim, "/status/phase"), text(&claim, "/spec/storageClassName")), ("Bound", "local"));
    let record = Record::A(text(&one, "/status/podIP").parse().unwrap());
    dns::expect(&format!("store-1.store.{}.svc.cluster.local", namespace.name), Kind::A, &[record]);

    // Another pod, the same name and the same data.
    namespace.kubectl(&["delete", "pod", "store-0"]);
    let again = until(&namespace, "pod", "store-0", "the pod comes back", |pod| {
        pod["metadata"]["uid"] != zero["metadata"]["uid"] && condition(pod, "Ready").starts_with("True")
    });
    assert_eq!(text(&again, "/spec/volumes/0/persistentVolumeClaim/claimName"), "data-store-0");
    assert_eq!(namespace.kubectl(&["exec", "store-0", "--", "cat", "/data/log"]), "store-0\nstore-0\n");
    assert_eq!(namespace.kubectl(&["exec", "store-1", "--", "cat", "/data/log"]), "store-1\n");

    // With the set go its claims, and with them the volumes.
    let volume = format!("pv/{}", text(&claim, "/spec/volumeName"));
    namespace.kubectl(&["delete", "statefulset", "store"]);
    namespace.wait("pvc/data-store-0", "delete", LIMIT);
    namespace.wait(&volume, "delete", LIMIT);
}

#[test]
fn a_daemon_set_runs_on_every_node_that_it_tolerates() {
    let namespace = namespace("daemon");
    let labels = json!({"app": "web"});
    namespace.apply(&[json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": sample(&[])},
        },
    })]);
    // Simulated nodes, if there are any, have a taint.
    namespace.wait("daemonset/agent", "jsonpath={.status.numberReady}=1", LIMIT);
    assert_eq!(namespace.get("daemonset", "agent")["status"]["desiredNumberScheduled"], 1);
    let nodes = namespace.kubectl(&["get", "nodes", "-l", "type!=kwok", "-o", "jsonpath={.items[*].metadata.name}"]);
    assert_eq!(namespace.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]), nodes);
}

#[test]
fn jobs_complete_or_fail_as_their_policy_says() {
    let namespace = namespace("jobs");
    let job = |name: &str, env: &[(&str, &str)], more: Value| {
        let mut spec = json!({"template": {"spec": sample_once(env)}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
    };
    let fail = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]});
    namespace.apply(&[
        job("twice", &[], json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed"})),
        job("hopeless", &[("FAIL", "exit=4")], json!({"backoffLimit": 0})),
        job("fatal", &[("FAIL", "exit=3")], json!({"backoffLimit": 6, "podFailurePolicy": fail})),
        json!({
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "yearly"},
            "spec": {
                "schedule": "0 0 1 1 *",
                "suspend": true,
                "jobTemplate": {"spec": {"template": {"spec": sample_once(&[])}}},
            },
        }),
    ]);
    namespace.kubectl(&["create", "job", "now", "--from=cronjob/yearly"]);

    namespace.wait("job/twice", "condition=Complete", LIMIT);
    let twice = namespace.get("job", "twice");
    assert_eq!((&twice["status"]["succeeded"], text(&twice, "/status/completedIndexes")), (&json!(2), "0,1"));
    namespace.wait("job/hopeless", "condition=Failed", LIMIT);
    let why = condition(&namespace.get("job", "hopeless"), "Failed");
    assert!(why.starts_with("True: BackoffLimitExceeded"), "{why}");
    namespace.wait("job/fatal", "condition=Failed", LIMIT);
    let why = condition(&namespace.get("job", "fatal"), "Failed");
    assert!(why.starts_with("True: PodFailurePolicy") && why.contains("failed with exit code 3"), "{why}");
    namespace.wait("job/now", "condition=Complete", LIMIT);
    let now = namespace.get("job", "now");
    assert_eq!(text(&now, "/metadata/ownerReferences/0/name"), "yearly");
    assert_eq!(text(&now, "/metadata/annotations/cronjob.kubernetes.io~1instantiate"), "manual");
}

#[test]
fn init_containers_run_one_after_the_other_before_the_rest() {
    let namespace = namespace("init");
    let mut spec = tools("echo main >> /shared/log && cat /shared/log");
    let step = |name: &str| {
        let mut step = spec["containers"][0].clone();
        step["name"] = json!(name);
        step["command"] = json!(["sh", "-c", format!("echo {name} >> /shared/log")]);
        step["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
        step
    };
    let steps = json!([step("first"), step("second")]);
    spec["initContainers"] = steps;
    spec["containers"][0]["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
    spec["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
    let mut stuck = sample(&[]);
    stuck["restartPolicy"] = json!("Never");
    stuck["initContainers"] = json!([sample_once(&[("FAIL", "exit=5")])["containers"][0]]);
    stuck["initContainers"][0]["name"] = json!("breaks");
    namespace.apply(&[pod("ordered", &spec), pod("stuck", &stuck)]);

    namespace.wait("pod/ordered", "jsonpath={.status.phase}=Succeeded", LIMIT);
    assert_eq!(namespace.kubectl(&["logs", "ordered"]), "first\nsecond\nmain\n");
    // Where one fails, nothing after it starts.
    namespace.wait("pod/stuck", "jsonpath={.status.phase}=Failed", LIMIT);
    let stuck = namespace.get("pod", "stuck");
    assert_eq!(stuck["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 5);
    assert_eq!(text(&stuck, "/status/containerStatuses/0/state/waiting/reason"), "PodInitializing");
}

#[test]
fn a_container_that_dies_is_started_again_and_its_last_words_are_kept() {
    let namespace = namespace("restart");
    let mut crash = sample(&[("FAIL", "crash-after=1s")]);
    crash["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    let mut sick = sample(&[("FAIL", "never-ready")]);
    sick["containers"][0]["livenessProbe"] =
        json!({"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1});
    namespace.apply(&[pod("crash", &crash), pod("sick", &sick)]);

    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() >= Some(1);
    let crashed = until(&namespace, "pod", "crash", "it is started again", restarted);
    let last = &crashed["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], text(last, "/reason")), (&json!(1), "Error"));
    assert!(text(last, "/message").contains("sample crashes, as it was told to"), "{last}");
    eventually("its log is kept", LIMIT, || {
        let ended = namespace.try_kubectl(&["logs", "crash", "--previous"], None);
        let kept = ended.stdout.contains("sample crashes, as it was told to");
        if kept { Ok(()) } else { Err(ended.stdout + &ended.stderr) }
    });

    let sick = until(&namespace, "pod", "sick", "what is not alive is started again", restarted);
    assert!(condition(&sick, "Ready").starts_with("False"), "{sick}");
    eventually("an event says why", LIMIT, || {
        let events = namespace.kubectl(&[
            "get",
            "events",
            "--field-selector=involvedObject.name=sick",
            "-o",
            "jsonpath={.items[*].message}",
        ]);
        let told = events.contains("Liveness probe failed: HTTP probe failed with statuscode: 503");
        if told { Ok(()) } else { Err(events) }
    });
}

#[test]
fn configuration_reaches_a_pod_as_environment_and_as_files() {
    let namespace = namespace("config");
    let mut spec = tools(concat!(
        "echo \"$COLOR $APP_SHAPE $PASSWORD $POD $AT $MOST\"; ",
        "cat /config/shape; stat -L -c ' %a' /config/shape; ls /config; cat /all/word /all/labels; echo; ls /maybe",
    ));
    let from = |kind: &str, name: &str, key: &str| json!({(kind): {"name": name, "key": key}});
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    spec["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi"}});
    spec["containers"][0]["envFrom"] = json!([{"prefix": "APP_", "configMapRef": {"name": "settings"}}]);
    spec["containers"][0]["env"] = json!([
        {"name": "COLOR", "valueFrom": from("configMapKeyRef", "settings", "COLOR")},
        {"name": "PASSWORD", "valueFrom": from("secretKeyRef", "hidden", "word")},
        {"name": "POD", "valueFrom": field("metadata.name")},
        {"name": "AT", "valueFrom": field("status.podIP")},
        {"name": "MOST", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ]);
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    spec["containers"][0]["volumeMounts"] = json!([mount("config"), mount("all"), mount("maybe")]);
    spec["volumes"] = json!([
        {"name": "config", "configMap": {
            "name": "settings",
            "defaultMode": 0o444,
            "items": [{"key": "SHAPE", "path": "shape"}],
        }},
        {"name": "all", "projected": {"sources": [
            {"secret": {"name": "hidden"}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ]}},
        {"name": "maybe", "secret": {"secretName": "missing", "optional": true}},
    ]);
    let mut settings = config_map("settings", &json!({"COLOR": "red", "SHAPE": "round"}));
    settings["immutable"] = json!(true);
    let hidden =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"}, "stringData": {"word": "sesame"}});
    namespace.apply(&[settings, hidden, pod("told", &spec)]);
    namespace.wait("pod/told", "jsonpath={.status.phase}=Succeeded", LIMIT);
    let address = text(&namespace.get("pod", "told"), "/status/podIP").to_owned();
    let wanted = format!("red round sesame told {address} 64\nround 444\nshape\nsesameapp=\"web\"\n");
    assert_eq!(namespace.kubectl(&["logs", "told"]), wanted);

    let ended = namespace.try_kubectl(&["patch", "configmap", "settings", "-p", r#"{"data":{"COLOR":"blue"}}"#], None);
    assert_refused(&ended, &["data: Forbidden: field is immutable when `immutable` is set"]);
}

#[test]
fn a_pod_is_held_to_its_limits_and_its_security_context() {
    let namespace = namespace("confined");
    let mut confined = tools(concat!(
        "echo $(id -u) $(id -g); touch /anywhere 2>/dev/null && echo writable; echo x > /scratch/x && echo scratch; ",
        "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status; ",
        "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes",
    ));
    confined["securityContext"] = json!({
        "runAsUser": 1234,
        "runAsGroup": 2345,
        "runAsNonRoot": true,
        "fsGroup": 3456,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    confined["containers"][0]["securityContext"] =
        json!({"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    confined["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi", "cpu": "500m"}});
    confined["containers"][0]["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]);
    confined["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    let mut greedy = tools("tail /dev/zero");
    greedy["containers"][0]["command"] = json!(["tail", "/dev/zero"]);
    greedy["containers"][0]["resources"] = json!({"limits": {"memory": "32Mi"}});
    let mut root = sample(&[]);
    root["securityContext"] = json!({"runAsUser": 0, "runAsNonRoot": true});
    namespace.apply(&[pod("confined", &confined), pod("greedy", &greedy), pod("root", &root)]);

    namespace.wait("pod/confined", "jsonpath={.status.phase}=Succeeded", LIMIT);
    let said = namespace.kubectl(&["logs", "confined"]);
    let said: Vec<String> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let wanted = ["1234 2345", "scratch", "CapEff: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2", "67108864"];
    assert_eq!(said, wanted);
    namespace.wait("pod/greedy", "jsonpath={.status.phase}=Failed", LIMIT);
    let end = &namespace.get("pod", "greedy")["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((text(end, "/reason"), &end["exitCode"]), ("OOMKilled", &json!(137)));
    let root = until(&namespace, "pod", "root", "root is refused", |pod| {
        text(pod, "/status/containerStatuses/0/state/waiting/reason") == "CreateContainerConfigError"
    });
    let why = text(&root, "/status/containerStatuses/0/state/waiting/message");
    assert!(why.contains("runAsUser breaks non-root policy"), "{why}");
}

#[test]
fn a_disruption_budget_refuses_an_eviction_that_would_break_it() {
    let namespace = namespace("budget");
    let budget = |least: u32| {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}},
        })
    };
    namespace.apply(&[pod("web", &sample(&[])), budget(1)]);
    namespace.wait("pod/web", "condition=Ready", LIMIT);
    namespace.wait("pdb/web", "jsonpath={.status.currentHealthy}=1", LIMIT);
    let evict = || {
        let path = format!("/api/v1/namespaces/{}/pods/web/eviction", namespace.name);
        let metadata = json!({"name": "web", "namespace": namespace.name});
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
        namespace.try_kubectl(&["create", "--raw", &path, "-f", "-"], Some(&eviction.to_string()))
    };
    assert_refused(
        &evict(),
        &["(TooManyRequests)", "Cannot evict pod as it would violate the pod's disruption budget"],
    );
    namespace.apply(&[budget(0)]);
    eventually("the pod is evicted", LIMIT, || {
        let ended = evict();
        if ended.code == 0 { Ok(()) } else { Err(ended.stderr) }
    });
    namespace.wait("pod/web", "delete", LIMIT);
}

#[test]
fn a_pod_that_fits_nowhere_waits_and_says_why() {
    let namespace = namespace("scheduling");
    let mut picky = sample(&[]);
    picky["nodeSelector"] = json!({"forge.example/kind": "none"});
    let mut huge = sample(&[]);
    huge["containers"][0]["resources"] = json!({"requests": {"cpu": "1000"}});
    let mut gated = sample(&[]);
    gated["schedulingGates"] = json!([{"name": "forge.example/wait"}]);
    namespace.apply(&[pod("picky", &picky), pod("huge", &huge), pod("gated", &gated)]);
    let says = |name: &str, reason: &str, message: &str| {
        until(&namespace, "pod", name, &format!("{name} says why it waits"), |pod| {
            let why = condition(pod, "PodScheduled");
            why.starts_with(&format!("False: {reason}")) && why.contains(message)
        });
    };
    says("picky", "Unschedulable", "didn't match Pod's node affinity/selector");
    says("huge", "Unschedulable", "Insufficient cpu");
    says("gated", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates");

    let patch = r#"[{"op":"remove","path":"/spec/schedulingGates"}]"#;
    namespace.kubectl(&["patch", "pod", "gated", "--type=json", "-p", patch]);
    namespace.wait("pod/gated", "condition=Ready", LIMIT);
}

#[test]
fn exec_passes_input_output_and_the_exit_code() {
    let toolbox = Toolbox::shared();
    let ended = toolbox.exec(&["sh", "-c", "cat; echo out; echo err >&2; exit 7"], Some("in\n"));
    assert_eq!((ended.code, ended.stdout.as_str()), (7, "in\nout\n"));
    assert!(ended.stderr.starts_with("err\n"), "{}", ended.stderr);
    let ended = toolbox.exec(&["no-such-program"], None);
    assert_refused(&ended, &["executable file not found"]);
}
