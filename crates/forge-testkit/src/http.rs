//! One request over HTTP as the small servers of tests read it, and the answer after which they hang up. Plain text over a
//! socket: no server to configure, and whatever a program of ours sends can be looked at.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is to be done, as `GET`.
    pub method: String,
    /// With what: the path, and the query behind it.
    pub uri: String,
    /// Everything before the content, line by line, the first one too.
    pub head: String,
    /// The content.
    pub body: Vec<u8>,
}

impl Request {
    /// Reads one; nothing where the other side hung up before it was whole.
    pub fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0_usize);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            head.push_str(&line);
        }
        let mut words = head.split(' ');
        let (method, uri) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        Some(Self { method, uri, head, body })
    }
}

/// Answers with JSON and hangs up; who does not listen any more has missed it.
pub fn reply(mut stream: &TcpStream, code: u16, headers: &[(&str, &str)], body: &str) {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_request_is_read_whole_and_answered_and_half_of_one_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asking = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            for half in ["", "GET /a HTTP/1.1\r\n", "POST /a HTTP/1.1\r\ncontent-length: 5\r\n\r\nhe"] {
                TcpStream::connect(address).unwrap().write_all(half.as_bytes()).unwrap();
            }
            answer
        });
        let (stream, _) = listener.accept().unwrap();
        let request = Request::read(&stream).unwrap();
        assert_eq!(
            (request.method.as_str(), request.uri.as_str(), request.body.as_slice()),
            ("POST", "/a?b=c", &b"hello"[..])
        );
        assert_eq!(request.head, "POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n");
        reply(&stream, 201, &[("date", "today")], "{}");
        drop(stream);
        for _ in 0..3 {
            assert_eq!(Request::read(&listener.accept().unwrap().0), None);
        }
        let answer = asking.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 x\r\n") && answer.ends_with("\r\n\r\n{}"), "{answer}");
        assert!(answer.contains("\r\ndate: today\r\n") && answer.contains("\r\ncontent-length: 2\r\n"), "{answer}");
    }
}
