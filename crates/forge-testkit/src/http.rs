//! One request over HTTP as the small servers of tests read it, and the answer after which they hang up. Plain text over a
//! socket: no server to configure, and whatever a program of ours sends can be looked at. Two such servers are here because
//! several tests want them: a folder, and a proxy that changes what is answered.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path};
use std::sync::Arc;
use std::{fs, thread};

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
pub fn reply(stream: &TcpStream, code: u16, headers: &[(&str, &str)], body: &str) {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    answer(stream, code, &format!("content-type: application/json\r\n{headers}"), body.as_bytes());
}

/// Answers with these lines of a head, each with its end, and with this content.
fn answer(mut stream: &TcpStream, code: u16, head: &str, body: &[u8]) {
    let length = body.len();
    let head = format!("HTTP/1.1 {code} x\r\n{head}content-length: {length}\r\nconnection: close\r\n\r\n");
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// Serves what is in a folder, as it is when it is asked for, until the program ends; gives the address, without a slash at its end.
///
/// # Errors
/// When nothing can be listened on.
pub fn serve_folder(folder: &Path) -> io::Result<String> {
    let folder = folder.to_owned();
    serve(move |stream, request| {
        let path = Path::new(request.uri.trim_start_matches('/'));
        let below = path.components().all(|part| matches!(part, Component::Normal(_)));
        match fs::read(folder.join(path)) {
            Ok(content) if below => answer(stream, 200, "", &content),
            _ => answer(stream, 404, "", b"there is no such file"),
        }
    })
}

/// What an answer is changed to on its way: the path that was asked for, the head line by line, and the content, which is read
/// only for paths that are wanted whole.
pub trait Change: Send + Sync + 'static {
    /// Whether the content of the answer is changed too.
    fn wants(&self, uri: &str) -> bool;
    /// A line of the head, without its end.
    fn head(&self, line: &str) -> String;
    /// The content, where it is wanted.
    fn body(&self, uri: &str, content: Vec<u8>) -> Vec<u8>;
}

/// A proxy on loopback in front of a server that speaks plain HTTP, until the program ends; gives its address. Everything passes
/// as it is, but for what is changed in answers.
///
/// # Errors
/// When nothing can be listened on.
pub fn serve_changed(server: &str, change: impl Change) -> io::Result<String> {
    let server = server.to_owned();
    serve(move |stream, request| {
        // Who does not get a whole answer is told nothing: that is how a server looks that went away.
        let _ = passed(&server, &change, stream, request);
    })
}

fn passed(server: &str, change: &impl Change, mut stream: &TcpStream, request: &Request) -> io::Result<()> {
    let upstream = TcpStream::connect(server)?;
    let kept = request.head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let head: String = kept.map(|line| format!("{line}\r\n")).collect();
    (&upstream).write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
    (&upstream).write_all(&request.body)?;
    let mut reader = BufReader::new(&upstream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        head.push_str(&format!("{}\r\n", change.head(line.trim_end())));
    }
    if !change.wants(&request.uri) {
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        return io::copy(&mut reader, &mut stream).map(drop);
    }
    let mut content = Vec::new();
    reader.read_to_end(&mut content)?;
    let content = change.body(&request.uri, content);
    let kept = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length:"));
    let head: String = kept.map(|line| format!("{line}\r\n")).collect();
    stream.write_all(format!("{head}content-length: {}\r\n\r\n", content.len()).as_bytes())?;
    stream.write_all(&content)
}

/// Listens on loopback and has every request answered, each by a thread of its own.
fn serve(work: impl Fn(&TcpStream, &Request) + Send + Sync + 'static) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    let work = Arc::new(work);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let work = Arc::clone(&work);
            thread::spawn(move || {
                if let Some(request) = Request::read(&stream) {
                    work(&stream, &request);
                }
            });
        }
    });
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole answer to a request.
    fn asked(address: &str, request: &str) -> String {
        let mut stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn a_folder_is_served_as_it_is_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(folder.path().join("secret"), "x").unwrap();
        let address = serve_folder(&below).unwrap();
        let get = |path: &str| asked(&address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert!(get("/a.txt").starts_with("HTTP/1.1 404 "));
        fs::write(below.join("a.txt"), "first").unwrap();
        assert!(get("/a.txt").ends_with("\r\ncontent-length: 5\r\nconnection: close\r\n\r\nfirst"));
        assert!(get("/../secret").starts_with("HTTP/1.1 404 "));
    }

    /// Says another day, and more.
    struct Later;

    impl Change for Later {
        fn wants(&self, uri: &str) -> bool {
            uri == "/a.txt"
        }
        fn head(&self, line: &str) -> String {
            line.replace("date: today", "date: tomorrow")
        }
        fn body(&self, uri: &str, content: Vec<u8>) -> Vec<u8> {
            [content.as_slice(), b" of ", uri.as_bytes()].concat()
        }
    }

    #[test]
    fn a_proxy_changes_what_it_is_told_to_and_passes_everything_else() {
        let server = serve(|stream, request| {
            let said = format!("{} {}", request.head.lines().count(), String::from_utf8_lossy(&request.body));
            reply(stream, 201, &[("date", "today")], &said);
        });
        let server = server.unwrap();
        let address = serve_changed(server.trim_start_matches("http://"), Later).unwrap();
        let post =
            |path: &str| asked(&address, &format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"));
        let (plain, changed) = (post("/b"), post("/a.txt"));
        for answer in [&plain, &changed] {
            assert!(answer.starts_with("HTTP/1.1 201 x\r\n") && answer.contains("date: tomorrow\r\n"), "{answer}");
        }
        assert!(plain.ends_with("\r\n\r\n4 hi"), "{plain}");
        assert!(changed.ends_with("content-length: 14\r\n\r\n4 hi of /a.txt"), "{changed}");
    }

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
