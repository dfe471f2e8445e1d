//! Nothing in a sandbox can send a packet off the machine, and the machine is not changed for it.

use std::fs;
use std::process::Command;
use std::time::Duration;

use forge_testkit::sandbox::{Ended, Sandbox, run, status};
use serde_json::json;

use crate::images::toolbox;

/// Addresses outside: of documentation networks, so that nobody is ever asked, and the neighbours of this machine.
fn outside() -> Vec<String> {
    let mut all = vec!["198.51.100.1".to_owned(), "203.0.113.7".to_owned()];
    let routes = run(Command::new("ip").args(["-4", "route", "show", "default"]), None).stdout;
    all.extend(routes.split_whitespace().skip_while(|word| *word != "via").nth(1).map(str::to_owned));
    all
}

#[test]
fn a_pod_cannot_reach_anything_off_the_machine() {
    let space = Sandbox::shared().namespace("isolation");
    for (name, host_network) in [("pod", false), ("host-pod", true)] {
        space.apply(&[json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "hostNetwork": host_network, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "tools", "image": toolbox(), "command": ["sleep", "600"]}],
            },
        })]);
    }
    for name in ["pod", "host-pod"] {
        space.wait(&format!("pod/{name}"), "condition=Ready", Duration::from_secs(120));
        for address in outside() {
            let script = format!("exec 3<>/dev/tcp/{address}/80");
            let ended = space.try_kubectl(&["exec", name, "--", "timeout", "3", "bash", "-c", &script], None);
            assert_ne!(ended.code, 0, "{name} reached {address}");
            // The kernel says so only so often; who is not told waits in vain.
            let said = ended.stderr.contains("unreachable") || ended.stderr.contains("exit code 124");
            assert!(said, "{name} to {address}: {}", ended.stderr);
        }
    }
}

/// How many packets this machine passed on, and how many came from the sandbox over its link.
fn counters(link: &str) -> (u64, u64) {
    let snmp = fs::read_to_string("/proc/net/snmp").unwrap();
    let mut rows = snmp.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
    let forwarded =
        names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "ForwDatagrams").unwrap().1.parse().unwrap();
    let received = fs::read_to_string(format!("/sys/class/net/{link}/statistics/rx_packets")).unwrap();
    (forwarded, received.trim().parse().unwrap())
}

#[test]
fn a_process_in_the_network_of_a_sandbox_cannot_either_even_if_it_breaks_its_own_rules() {
    // Of its own: it is broken on purpose, and the address of another is what tells which link is meant.
    let sandbox = Sandbox::up("isolation", &[]);
    let node = sandbox.registry.split(':').next().unwrap().to_owned();
    let host = node.replace(".255.2", ".255.1");
    let init = status("isolation")["initPid"].as_i64().unwrap();
    let inside = |script: &str| -> Ended {
        run(Command::new("nsenter").arg(format!("--net=/proc/{init}/ns/net")).args(["--", "bash", "-c", script]), None)
    };
    let link = run(Command::new("ip").args(["-brief", "-4", "address", "show", "to", &host]), None).stdout;
    let link = link.split(['@', ' ']).next().unwrap().to_owned();

    for address in outside() {
        let ended = inside(&format!("exec 3<>/dev/tcp/{address}/80"));
        assert!(ended.stderr.contains("unreachable"), "{address}: {}", ended.stderr);
    }
    // With a default route over the link, the sandbox's own rules drop it.
    let send = |count: u32| {
        for address in outside() {
            for _ in 0..count {
                inside(&format!("echo packet > /dev/udp/{address}/9"));
            }
        }
    };
    assert_eq!(inside(&format!("ip route add default via {host}")).code, 0);
    let before = counters(&link);
    send(5);
    let between = counters(&link);
    assert_eq!(between.0, before.0, "the host forwarded something");
    // Without these rules, packets come as far as the host, which does not pass them on.
    assert_eq!(inside("nft delete table inet forge-sandbox").code, 0);
    send(5);
    let after = counters(&link);
    assert!(after.1 >= between.1 + 10, "the packets did not even come to the host: {between:?} {after:?}");
    assert_eq!(after.0, before.0, "the host forwarded something");
    // Only what answers the host may leave: a new connection to the host itself is refused too.
    assert_eq!(sandbox.command(&["up"]).code, 0, "up puts the rules back");
    assert!(inside("nft list tables").stdout.contains("forge-sandbox"));
    assert_eq!(sandbox.command(&["down"]).code, 0);
}
