//! Is a component well? Asked over its own endpoint, from the host, with the reason if it is not.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use crate::init::Init;
use crate::program::Program;

/// How the health of a component is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// A plain GET that must give 200.
    Http {
        /// Of the server.
        address: SocketAddr,
        /// To ask for.
        path: String,
    },
    /// A GET over TLS with our authority, through kubectl.
    Raw {
        /// Address of the server.
        server: String,
        /// To ask for.
        path: &'static str,
    },
    /// The API server is ready, and not only alive.
    Api,
    /// containerd answers over its socket.
    Containerd,
}

/// What is needed to ask.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// kubectl.
    pub kubectl: &'a Path,
    /// With all rights.
    pub kubeconfig: &'a Path,
    /// Of the sandbox.
    pub init: Init,
}

const PATIENCE: Duration = Duration::from_secs(2);

impl Asker<'_> {
    /// Nothing if it is well, or why it is not.
    pub fn ask(&self, check: &Check) -> Result<(), String> {
        match check {
            Check::Http { address, path } => http(*address, path).and_then(|(status, body)| match status {
                200 => Ok(()),
                _ => Err(format!("answers {status}: {}", one_line(&body))),
            }),
            Check::Raw { server, path } => self.raw(&["--server", server, "--raw", path]),
            Check::Api => self.raw(&["--raw", "/readyz"]),
            Check::Containerd => {
                let socket = format!("/proc/{}/root/run/containerd/containerd.sock", self.init.pid);
                let asked = Program::new("ctr").args(["--address", &socket, "--connect-timeout", "2s", "version"]);
                asked.limit(PATIENCE * 2).run().map(drop).map_err(|error| error.to_string())
            }
        }
    }

    fn raw(&self, args: &[&str]) -> Result<(), String> {
        let asked = Program::new(self.kubectl)
            .arg("get")
            .args(args)
            .args(["--request-timeout", "2s"])
            .env("KUBECONFIG", self.kubeconfig)
            .limit(PATIENCE * 2);
        asked.run().map(drop).map_err(|error| error.to_string())
    }
}

/// What a registry needs to hear before it gives a manifest.
const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, */*";

/// The status and body of a GET.
pub fn http(address: SocketAddr, path: &str) -> Result<(u16, String), String> {
    let talk = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {ACCEPT}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(4 << 20).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = talk().map_err(|error| format!("does not answer: {error}"))?;
    let status = answer.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    status.map(|status| (status, body.to_owned())).ok_or_else(|| "answers something that is not HTTP".to_owned())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect()
}

/// Asks a name server for the address of a name, as a pod would.
pub fn resolve(server: Ipv4Addr, name: &str) -> Result<Ipv4Addr, String> {
    let talk = || -> std::io::Result<Vec<u8>> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        socket.connect((server, 53))?;
        socket.send(&question(name))?;
        let mut answer = vec![0; 512];
        let length = socket.recv(&mut answer)?;
        answer.truncate(length);
        Ok(answer)
    };
    let answer = talk().map_err(|error| format!("the name server does not answer: {error}"))?;
    address_in(&answer).ok_or_else(|| format!("the name server does not know {name}"))
}

/// A query for an A record, recursion not asked for.
fn question(name: &str) -> Vec<u8> {
    let mut packet = vec![0x0f, 0x6e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        packet.push(u8::try_from(label.len()).unwrap_or(0));
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    packet
}

/// The last four bytes of an answer with one A record are its address; that is all that is asked for here.
fn address_in(answer: &[u8]) -> Option<Ipv4Addr> {
    let (flags, count) = (answer.get(3)?, answer.get(7)?);
    if flags & 0x0f != 0 || *count == 0 {
        return None;
    }
    let octets: [u8; 4] = answer.get(answer.len().checked_sub(4)?..)?.try_into().ok()?;
    Some(octets.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_server_that_is_not_there_is_said_to_be_so() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(http(free, "/").unwrap_err().starts_with("does not answer"));
    }

    #[test]
    fn status_and_body_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 503 Busy\r\nX: y\r\n\r\nnot\nyet").unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        assert_eq!(http(address, "/healthz").unwrap(), (503, "not\nyet".to_owned()));
        assert!(server.join().unwrap().starts_with("GET /healthz HTTP/1.0\r\n"));
    }

    #[test]
    fn a_name_is_asked_for_and_its_address_found() {
        let asked = question("a.bc");
        assert_eq!(&asked[12..], [1, b'a', 2, b'b', b'c', 0, 0, 1, 0, 1]);
        let mut answer = asked;
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 1, 2, 3]);
        assert_eq!(address_in(&answer), Some(Ipv4Addr::new(10, 1, 2, 3)));
        answer[3] = 3;
        assert_eq!(address_in(&answer), None, "no such name");
        assert_eq!(address_in(&[1, 2]), None);
    }
}
