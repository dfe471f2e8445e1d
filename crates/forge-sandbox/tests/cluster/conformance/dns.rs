//! [DNS for Services and Pods](https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/).

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::OnceLock;
use std::time::Duration;

use forge_testkit::sandbox::{Sandbox, eventually};
use serde_json::json;

use super::toolbox::{self, Toolbox, tools};
use super::{LIMIT, namespace, pod, service, text};

#[test]
fn a_service_has_records_for_its_name_its_ports_and_its_address() {
    let namespace = namespace("dns-service");
    namespace.apply(&[service("web", &json!({}))]);
    let name = format!("web.{}.svc.cluster.local", namespace.name);
    let address: Ipv4Addr = text(&namespace.get("service", "web"), "/spec/clusterIP").parse().unwrap();

    expect(&name, Kind::A, &[Record::A(address)]);
    expect(&format!("_web._tcp.{name}"), Kind::Srv, &[Record::Srv(80, name.clone())]);
    let [a, b, c, d] = address.octets();
    expect(&format!("{d}.{c}.{b}.{a}.in-addr.arpa"), Kind::Ptr, &[Record::Ptr(name.clone())]);

    // With the service its name goes.
    namespace.kubectl(&["delete", "service", "web"]);
    expect_none(&name);
}

#[test]
fn a_headless_service_has_the_addresses_of_its_ready_endpoints() {
    let namespace = namespace("dns-headless");
    let endpoint = |address: &str, name: &str, ready: bool| {
        let conditions = json!({"ready": ready});
        json!({"addresses": [address], "hostname": name, "conditions": conditions})
    };
    let mut peers = service("peers", &json!({"clusterIP": "None"}));
    peers["spec"].as_object_mut().unwrap().remove("selector");
    namespace.apply(&[
        peers,
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "peers-1", "labels": {"kubernetes.io/service-name": "peers"}},
            "addressType": "IPv4",
            "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
            "endpoints": [
                endpoint("192.0.2.1", "one", true),
                endpoint("192.0.2.2", "two", true),
                endpoint("192.0.2.3", "three", false),
            ],
        }),
    ]);
    let name = format!("peers.{}.svc.cluster.local", namespace.name);
    let [one, two] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

    expect(&name, Kind::A, &[Record::A(one), Record::A(two)]);
    expect(&format!("two.{name}"), Kind::A, &[Record::A(two)]);
    // Ports are those of the endpoints, not of the service.
    let ports = [Record::Srv(8080, format!("one.{name}")), Record::Srv(8080, format!("two.{name}"))];
    expect(&format!("_web._tcp.{name}"), Kind::Srv, &ports);
    expect_none(&format!("three.{name}"));
}

#[test]
fn an_external_name_leads_elsewhere() {
    let namespace = namespace("dns-external");
    let external = |name: &str, target: &str| {
        let spec = json!({"type": "ExternalName", "externalName": target});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
    };
    let api = "kubernetes.default.svc.cluster.local";
    namespace.apply(&[external("far", "database.example.com"), external("near", api)]);
    let name = |service: &str| format!("{service}.{}.svc.cluster.local", namespace.name);

    expect(&name("far"), Kind::Cname, &[Record::Cname("database.example.com".to_owned())]);
    let Some(Record::A(address)) = ask(api, Kind::A).records.first().cloned() else {
        panic!("the API server has no address");
    };
    expect(&name("near"), Kind::A, &[Record::Cname(api.to_owned()), Record::A(address)]);
}

#[test]
fn a_name_that_does_not_exist_is_denied() {
    for name in ["nothing.default.svc.cluster.local", "kubernetes.nowhere.svc.cluster.local", "nothing.cluster.local"] {
        let reply = ask(name, Kind::A);
        assert!((reply.code, reply.records.len()) == (NO_SUCH_NAME, 0), "{name}: {reply:?}");
    }
    // The name exists, but not with this type: no error, and nothing.
    let reply = ask("kubernetes.default.svc.cluster.local", Kind::Srv);
    assert_eq!(reply.code, 0, "{reply:?}");
    let reply = ask("kubernetes.default.svc.cluster.local", Kind::Cname);
    assert!((reply.code, reply.records.len()) == (0, 0), "{reply:?}");
}

#[test]
fn a_pod_finds_services_by_their_short_names() {
    let toolbox = Toolbox::shared();
    let resolver = toolbox.exec(&["cat", "/etc/resolv.conf"], None).stdout;
    let lines: Vec<&str> = resolver.lines().collect();
    let search = format!("search {}.svc.cluster.local svc.cluster.local cluster.local", toolbox::NAMESPACE);
    assert!(lines.contains(&format!("nameserver {}", server()).as_str()), "{resolver}");
    assert!(lines.iter().any(|line| line.starts_with(&search)), "{resolver}");
    assert!(lines.contains(&"options ndots:5"), "{resolver}");

    let sandbox = Sandbox::shared();
    let address =
        sandbox.kubectl(&["get", "service", "web", "-n", toolbox::NAMESPACE, "-o", "jsonpath={.spec.clusterIP}"]);
    for name in
        ["web", "web.toolbox", "web.toolbox.svc", "web.toolbox.svc.cluster.local", "web.toolbox.svc.cluster.local."]
    {
        let (answer, from) = eventually(name, LIMIT, || toolbox.fetch(&format!("http://{name}/")));
        assert_eq!((answer.status, answer.field("name").as_str(), from), (200, "neighbour", address.clone()), "{name}");
    }
    let failure = toolbox.fetch("http://nothing/").err().unwrap_or_default();
    assert!(failure.contains("Could not resolve host: nothing"), "{failure}");
}

#[test]
fn a_pod_may_bring_its_own_name_server_hosts_and_host_name() {
    let namespace = namespace("dns-config");
    let mut spec = tools("cat /etc/resolv.conf /etc/hosts /etc/hostname");
    spec.as_object_mut().unwrap().extend(
        json!({
            "dnsPolicy": "None",
            "dnsConfig": {
                "nameservers": ["192.0.2.53"],
                "searches": ["forge.example", "example.org"],
                "options": [{"name": "ndots", "value": "2"}],
            },
            "hostAliases": [{"ip": "192.0.2.80", "hostnames": ["old.forge.example", "older.forge.example"]}],
            "hostname": "captain",
            "subdomain": "crew",
        })
        .as_object()
        .unwrap()
        .clone(),
    );
    namespace.apply(&[pod("own", &spec)]);
    namespace.wait("pod/own", "jsonpath={.status.phase}=Succeeded", LIMIT);
    let said = namespace.kubectl(&["logs", "own"]);
    let words: Vec<String> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let address = namespace.kubectl(&["get", "pod", "own", "-o", "jsonpath={.status.podIP}"]);
    for line in [
        "nameserver 192.0.2.53".to_owned(),
        "search forge.example example.org".to_owned(),
        "options ndots:2".to_owned(),
        "192.0.2.80 old.forge.example older.forge.example".to_owned(),
        format!("{address} captain.crew.{}.svc.cluster.local captain", namespace.name),
        "captain".to_owned(),
    ] {
        assert!(words.contains(&line), "`{line}` is not in\n{said}");
    }
}

// ------------------------------------------------------------------------------------------------------ the client

const NO_SUCH_NAME: u8 = 3;

/// The kinds of records that tests ask for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    A = 1,
    Cname = 5,
    Ptr = 12,
    Srv = 33,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Record {
    A(Ipv4Addr),
    Cname(String),
    Ptr(String),
    Srv(u16, String),
    Other(u16),
}

#[derive(Debug)]
struct Reply {
    code: u8,
    records: Vec<Record>,
}

/// Waits until a name has exactly these records.
pub(super) fn expect(name: &str, kind: Kind, records: &[Record]) {
    let mut wanted = records.to_vec();
    wanted.sort();
    eventually(&format!("{kind:?} of {name}"), LIMIT, || {
        let mut reply = ask(name, kind);
        reply.records.sort();
        if reply.records == wanted { Ok(()) } else { Err(format!("{reply:?}")) }
    });
}

/// Waits until a name does not exist.
fn expect_none(name: &str) {
    eventually(&format!("{name} does not exist"), LIMIT, || {
        let reply = ask(name, Kind::A);
        if reply.code == NO_SUCH_NAME { Ok(()) } else { Err(format!("{reply:?}")) }
    });
}

/// The name server of the cluster.
fn server() -> Ipv4Addr {
    static SERVER: OnceLock<Ipv4Addr> = OnceLock::new();
    *SERVER.get_or_init(|| {
        let args = ["get", "service", "kube-dns", "-n", "kube-system", "-o", "jsonpath={.spec.clusterIP}"];
        Sandbox::shared().kubectl(&args).parse().unwrap()
    })
}

/// One question from the host, over UDP, asked again if nothing comes back.
fn ask(name: &str, kind: Kind) -> Reply {
    eventually(&format!("an answer about {name}"), LIMIT, || {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).map_err(|error| error.to_string())?;
        socket.set_read_timeout(Some(Duration::from_secs(2))).map_err(|error| error.to_string())?;
        socket.send_to(&question(name, kind), (server(), 53)).map_err(|error| error.to_string())?;
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).map_err(|error| error.to_string())?;
        Ok(reply(&bytes[..length]))
    })
}

/// RFC 1035: a header with one question, then the name, the type and the class.
fn question(name: &str, kind: Kind) -> Vec<u8> {
    let mut bytes = vec![0x42, 0x42, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, kind as u8, 0, 1]);
    bytes
}

fn reply(bytes: &[u8]) -> Reply {
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (_, mut at) = read_name(bytes, 12);
    at += 4;
    let mut records = Vec::new();
    for _ in 0..number(6) {
        let (_, after) = read_name(bytes, at);
        let (kind, length, data) = (number(after), usize::from(number(after + 8)), after + 10);
        records.push(match kind {
            1 => Record::A(Ipv4Addr::new(bytes[data], bytes[data + 1], bytes[data + 2], bytes[data + 3])),
            5 => Record::Cname(read_name(bytes, data).0),
            12 => Record::Ptr(read_name(bytes, data).0),
            33 => Record::Srv(number(data + 4), read_name(bytes, data + 6).0),
            other => Record::Other(other),
        });
        at = data + length;
    }
    Reply { code: bytes[3] & 15, records }
}

/// A name, which may go on elsewhere, and where the bytes after it begin.
fn read_name(bytes: &[u8], mut at: usize) -> (String, usize) {
    let mut labels = Vec::new();
    let mut end = None;
    loop {
        let length = usize::from(bytes[at]);
        if length >= 0xc0 {
            end = end.or(Some(at + 2));
            at = (length & 0x3f) << 8 | usize::from(bytes[at + 1]);
            continue;
        }
        at += 1;
        if length == 0 {
            return (labels.join("."), end.unwrap_or(at));
        }
        labels.push(String::from_utf8_lossy(&bytes[at..at + length]).into_owned());
        at += length;
    }
}
