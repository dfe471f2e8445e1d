//! [Services](https://kubernetes.io/docs/concepts/services-networking/service/) and
//! [virtual addresses](https://kubernetes.io/docs/reference/networking/virtual-ips/). The tests of DNS go over UDP.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use forge_testkit::sandbox::{Namespace, eventually};
use serde_json::{Value, json};

use super::toolbox::{self, Toolbox, tools};
use super::{LIMIT, assert_refused, deployment, http, namespace, pod, sample, service, text};

#[test]
fn a_service_leads_to_all_its_pods_whichever_way_it_is_reached() {
    let namespace = namespace("services");
    namespace.apply(&[
        deployment("web", 2, &sample(&[])),
        service("web", &json!({})),
        service("loyal", &json!({"sessionAffinity": "ClientIP"})),
        service("outside", &json!({"type": "NodePort"})),
    ]);
    namespace.wait("deployment/web", "condition=Available", LIMIT);
    // The slices may follow the deployment a moment later.
    let pods: BTreeSet<String> = eventually("both pods are ready", LIMIT, || {
        let pods: BTreeSet<String> = ready(&namespace, "web").into_keys().collect();
        if pods.len() == 2 { Ok(pods) } else { Err(format!("{pods:?}")) }
    });

    // From the host, by address.
    reached(&namespace, "web", &pods);
    let node = node();
    let port = namespace.get("service", "outside")["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    let port = u16::try_from(port).unwrap();
    assert!((30000..=32767).contains(&port), "{port}");
    eventually("the port of the node leads to both pods", LIMIT, || all_of(&ask(node, port, 20)?, &pods));

    // A client stays where it was first.
    let loyal = cluster_ip(&namespace, "loyal");
    let first = eventually("the service answers", LIMIT, || ask(loyal, 80, 1)).pop_first().unwrap();
    assert_eq!(ask(loyal, 80, 30).unwrap(), BTreeSet::from([first]));

    // From a pod, by name and by address.
    let toolbox = Toolbox::shared();
    let address = cluster_ip(&namespace, "web");
    for host in [format!("web.{}", namespace.name), address.to_string()] {
        let (answer, from) = eventually(&host, LIMIT, || toolbox.fetch(&format!("http://{host}/")));
        assert!(answer.status == 200 && pods.contains(&answer.field("pod")), "{host}: {}", answer.body);
        assert_eq!(from, address.to_string());
    }
}

#[test]
fn only_ready_pods_get_traffic() {
    let namespace = namespace("readiness");
    let mut gated = sample(&[]);
    gated["readinessGates"] = json!([{"conditionType": "forge.example/open"}]);
    namespace.apply(&[
        pod("plain", &sample(&[])),
        pod("gated", &gated),
        service("web", &json!({})),
        service("eager", &json!({"publishNotReadyAddresses": true})),
    ]);
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let gate = |status: &str| {
        let patch = json!({"status": {"conditions": [{"type": "forge.example/open", "status": status}]}}).to_string();
        namespace.kubectl(&["patch", "pod", "gated", "--subresource=status", "--type=strategic", "-p", &patch]);
    };
    namespace.wait("pod/plain", "condition=Ready", LIMIT);
    namespace.wait("pod/gated", "condition=ContainersReady", LIMIT);

    ready_are(&namespace, "web", &[("plain", true), ("gated", false)]);
    reached(&namespace, "web", &names(&["plain"]));
    ready_are(&namespace, "eager", &[("plain", true), ("gated", true)]);
    reached(&namespace, "eager", &names(&["plain", "gated"]));

    gate("True");
    ready_are(&namespace, "web", &[("plain", true), ("gated", true)]);
    reached(&namespace, "web", &names(&["plain", "gated"]));

    gate("False");
    ready_are(&namespace, "web", &[("plain", true), ("gated", false)]);
    reached(&namespace, "web", &names(&["plain"]));
}

#[test]
fn a_service_without_endpoints_refuses_at_once() {
    let namespace = namespace("no-endpoints");
    namespace.apply(&[service("web", &json!({}))]);
    let address = SocketAddr::new(cluster_ip(&namespace, "web"), 80);
    eventually("the connection is refused", LIMIT, || {
        match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let (toolbox, url) = (Toolbox::shared(), format!("http://web.{}/", namespace.name));
    eventually("a pod is refused as well", LIMIT, || match toolbox.fetch(&url) {
        Err(failure) if failure.contains("Connection refused") => Ok(()),
        Err(failure) => Err(failure),
        Ok((answer, _)) => Err(answer.body),
    });
}

#[test]
fn a_pod_reaches_itself_through_its_own_service() {
    let namespace = namespace("hairpin");
    let mut spec = sample(&[]);
    spec["containers"].as_array_mut().unwrap().push(tools("exec sleep infinity")["containers"][0].clone());
    namespace.apply(&[pod("self", &spec), service("web", &json!({}))]);
    namespace.wait("pod/self", "condition=Ready", LIMIT);
    let inside = Toolbox { namespace: namespace.name.clone(), pod: "self".to_owned() };
    let (answer, from) = eventually("it answers itself", LIMIT, || inside.fetch("http://web/"));
    assert_eq!((answer.status, answer.field("pod").as_str()), (200, "self"));
    assert_eq!(from, cluster_ip(&namespace, "web").to_string());
}

#[test]
fn a_service_without_selector_leads_where_its_endpoint_slice_says() {
    Toolbox::shared();
    let namespace = namespace("no-selector");
    let path = "jsonpath={.items[0].status.podIP}";
    let neighbour = namespace.sandbox.kubectl(&["get", "pods", "-l", "app=web", "-n", toolbox::NAMESPACE, "-o", path]);
    let mut elsewhere = service("elsewhere", &json!({"ports": [{"port": 9000, "targetPort": 8080}]}));
    elsewhere["spec"].as_object_mut().unwrap().remove("selector");
    namespace.apply(&[
        elsewhere,
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "elsewhere-1", "labels": {"kubernetes.io/service-name": "elsewhere"}},
            "addressType": "IPv4",
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [neighbour]}],
        }),
    ]);
    let address = cluster_ip(&namespace, "elsewhere");
    let answer = eventually("it leads elsewhere", LIMIT, || http(address, 9000, "/"));
    assert_eq!((answer.status, answer.field("name").as_str()), (200, "neighbour"));
}

#[test]
fn addresses_and_ports_are_given_out_once_and_kept() {
    let namespace = namespace("allocation");
    namespace.apply(&[service("first", &json!({"type": "NodePort"}))]);
    let first = namespace.get("service", "first");
    let (address, port) = (text(&first, "/spec/clusterIP"), &first["spec"]["ports"][0]["nodePort"]);
    let try_service = |more: &Value| namespace.try_apply(&[service("second", more)]);

    assert_refused(
        &try_service(&json!({"clusterIP": address})),
        &["spec.clusterIPs", "provided IP is already allocated"],
    );
    assert_refused(
        &try_service(&json!({"clusterIP": "192.0.2.1"})),
        &["spec.clusterIPs", "does not match the current range"],
    );
    let taken = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    assert_refused(&try_service(&taken), &["spec.ports[0].nodePort", "provided port is already allocated"]);
    let low = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]});
    assert_refused(&try_service(&low), &["spec.ports[0].nodePort", "not in the valid range"]);
    let nameless = json!({"ports": [{"port": 80}, {"port": 81}]});
    assert_refused(
        &try_service(&nameless),
        &["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
    );

    let patch = r#"{"spec":{"clusterIP":"192.0.2.1","clusterIPs":["192.0.2.1"]}}"#;
    let ended = namespace.try_kubectl(&["patch", "service", "first", "-p", patch], None);
    assert_refused(&ended, &["spec.clusterIPs[0]", "may not change once set"]);
    // What was free is given back.
    namespace.kubectl(&["delete", "service", "first"]);
    eventually("the address is free again", LIMIT, || {
        let ended = try_service(&json!({"clusterIP": address}));
        if ended.code == 0 { Ok(()) } else { Err(ended.stderr) }
    });
}

fn cluster_ip(namespace: &Namespace, service: &str) -> IpAddr {
    text(&namespace.get("service", service), "/spec/clusterIP").parse().unwrap()
}

/// The address of the real node.
fn node() -> IpAddr {
    let path = r#"jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}"#;
    super::Sandbox::shared().kubectl(&["get", "nodes", "-l", "type!=kwok", "-o", path]).parse().unwrap()
}

/// The pods that answer some requests, each over a connection of its own.
fn ask(address: IpAddr, port: u16, requests: u32) -> Result<BTreeSet<String>, String> {
    (0..requests).map(|_| http(address, port, "/").map(|answer| answer.field("pod"))).collect()
}

fn all_of(seen: &BTreeSet<String>, pods: &BTreeSet<String>) -> Result<(), String> {
    if seen == pods { Ok(()) } else { Err(format!("{seen:?} answered")) }
}

/// Waits until requests to a service reach all of these pods and no other.
fn reached(namespace: &Namespace, service: &str, pods: &BTreeSet<String>) {
    let address = cluster_ip(namespace, service);
    eventually(&format!("{service} leads to {pods:?}"), LIMIT, || all_of(&ask(address, 80, 20)?, pods));
}

/// The pods behind a service, and whether they count as ready.
fn ready(namespace: &Namespace, service: &str) -> BTreeMap<String, bool> {
    let label = format!("kubernetes.io/service-name={service}");
    let slices: Value =
        serde_json::from_str(&namespace.kubectl(&["get", "endpointslices", "-l", &label, "-o", "json"])).unwrap();
    let slices = slices["items"].as_array().unwrap().iter();
    let endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    endpoints.map(|one| (text(&one, "/targetRef/name").to_owned(), one["conditions"]["ready"] == true)).collect()
}

fn ready_are(namespace: &Namespace, service: &str, pods: &[(&str, bool)]) {
    let wanted: BTreeMap<String, bool> = pods.iter().map(|(name, ready)| ((*name).to_owned(), *ready)).collect();
    eventually(&format!("the endpoints of {service}"), LIMIT, || {
        let now = ready(namespace, service);
        if now == wanted { Ok(()) } else { Err(format!("{now:?}")) }
    });
}
