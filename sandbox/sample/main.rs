//! The sample workload of `examples/platform`: a small HTTP server that becomes ready when it is told to, and fails when
//! it is told to.
//!
//! | setting | what it does |
//! |---|---|
//! | `PORT` | the port, 8080 if not set; open at once |
//! | `READY_AFTER` | `/healthz` answers 503 until this much time has passed since the start, then 200 (`3s`, `500ms`, `1m30s`, `0`) |
//! | `RUN_ONCE` | `true`: it ends with 0 once it is ready, as a Job does |
//! | `FAIL` | `never-ready`; `crash`: ends with 1 at once; `crash-after=DURATION`; `exit=N`: ends with N in place of becoming ready |
//! | `FAIL_FILE` | a file that is read again and again; what it holds counts as `FAIL` does, from when it was seen first |
//! | `GRACE` | how long it goes on, not ready, after SIGTERM or SIGINT; it ends at once if not set |
//! | `NAME`, `VERSION`, `POD_NAME` | what `/` tells, with the uptime, as JSON; `HOSTNAME` stands in for `POD_NAME` |
//!
//! One file, no crates, built by plain `rustc`; outside the workspace, because it talks to the C library. One thread: a
//! slow client costs a place in a short list, and the oldest one gives its place up.

use std::ffi::{c_int, c_short, c_ulong, c_void};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::exit;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Clients served at a time.
const PLACES: usize = 64;
/// Longest request that is read.
const LONGEST_REQUEST: usize = 8 << 10;
/// How much of what comes after it is taken in before the client is cut off, which may cost it the answer.
const LONGEST_REST: usize = 256 << 10;
/// How long a client may take for its request and the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the file that can switch failure on is read.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Longest content of that file that is looked at.
const LONGEST_ORDER: u64 = 4 << 10;

/// Says something on stderr, where a container's log is made. Nobody listening is no reason to fail.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

fn main() {
    let start = Instant::now();
    let settings = Settings::from_environment().unwrap_or_else(|problem| {
        say!("sample: {problem}");
        exit(2);
    });
    let signals = catch_signals();
    let listener = listen(settings.port).unwrap_or_else(|error| {
        say!("sample: failed to listen on port {}: {error}", settings.port);
        exit(1);
    });
    say!("{} listens on port {}, ready after {:?}", settings.name, settings.port, settings.ready_after);
    Server { start, settings, order: Order::default(), stop: None, said_ready: false }.run(&listener, &signals)
}

// ---------------------------------------------------------------------------------------------------- settings

struct Settings {
    port: u16,
    ready_after: Duration,
    run_once: bool,
    fail: Fail,
    fail_file: Option<String>,
    grace: Duration,
    name: String,
    version: String,
    pod: String,
}

impl Settings {
    fn from_environment() -> Result<Self, String> {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let time = |name: &str| match text(name) {
            Some(value) => {
                duration(&value).ok_or(format!("`{name}` is `{value}`, not a duration such as `3s` or `500ms`"))
            }
            None => Ok(Duration::ZERO),
        };
        let port = text("PORT").unwrap_or("8080".to_owned());
        Ok(Self {
            port: port.parse().map_err(|_| format!("`PORT` is `{port}`, not a port"))?,
            ready_after: time("READY_AFTER")?,
            run_once: match text("RUN_ONCE").as_deref() {
                None | Some("false") => false,
                Some("true") => true,
                Some(other) => return Err(format!("`RUN_ONCE` is `{other}`, neither `true` nor `false`")),
            },
            fail: Fail::parse(&text("FAIL").unwrap_or_default())?,
            fail_file: text("FAIL_FILE"),
            grace: time("GRACE")?,
            name: text("NAME").unwrap_or("sample".to_owned()),
            version: text("VERSION").unwrap_or_default(),
            pod: text("POD_NAME").or(text("HOSTNAME")).unwrap_or_default(),
        })
    }
}

/// A duration as Go writes them: numbers with a unit, one after the other; `0` needs none.
fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let unit = rest[number..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |length| number + length);
        let scale = match &rest[number..unit] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += rest[..number].parse::<f64>().ok()? * scale;
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(seconds).ok().filter(|_| !text.is_empty())
}

// ----------------------------------------------------------------------------------------------------- failures

/// How it was told to fail.
#[derive(Default, Clone, Copy, PartialEq)]
enum Fail {
    #[default]
    Not,
    NeverReady,
    CrashAfter(Duration),
    Exit(u8),
}

impl Fail {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no way to fail: use `never-ready`, `crash`, `crash-after=DURATION` or `exit=N`");
        Ok(match text.split_once('=') {
            None if text.is_empty() => Self::Not,
            None if text == "never-ready" => Self::NeverReady,
            None if text == "crash" => Self::CrashAfter(Duration::ZERO),
            Some(("crash-after", time)) => Self::CrashAfter(duration(time).ok_or_else(wrong)?),
            Some(("exit", code)) => Self::Exit(code.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        })
    }
}

/// What the file says at the moment.
#[derive(Default)]
struct Order {
    text: String,
    fail: Fail,
    since: Option<Instant>,
    looked: Option<Instant>,
}

impl Order {
    /// Reads the file if it is time to. It may appear, change and go at any moment.
    fn look(&mut self, file: &str, now: Instant) {
        if self.looked.is_some_and(|looked| now < looked + LOOK_AGAIN) {
            return;
        }
        self.looked = Some(now);
        let mut text = String::new();
        let read = std::fs::File::open(file).and_then(|open| open.take(LONGEST_ORDER).read_to_string(&mut text));
        if read.is_err() {
            text.clear();
        }
        if text == self.text {
            return;
        }
        self.fail = Fail::parse(text.trim()).unwrap_or_else(|problem| {
            say!("sample: {file}: {problem}");
            Fail::Not
        });
        self.since = Some(now);
        self.text = text;
    }
}

// ------------------------------------------------------------------------------------------------------- server

struct Server {
    start: Instant,
    settings: Settings,
    order: Order,
    stop: Option<Instant>,
    said_ready: bool,
}

/// How far a client has got.
enum Stage {
    /// It has sent this much of its request.
    Asking(Vec<u8>),
    /// It is sent this, of which so many bytes are gone.
    Told(Vec<u8>, usize),
    /// It has its answer. Closed now, what it may still send would be refused, and the answer be lost with it; so many bytes
    /// were thrown away.
    Leaving(usize),
}

/// A client.
struct Client {
    stream: TcpStream,
    stage: Stage,
    deadline: Instant,
}

impl Server {
    fn run(mut self, listener: &TcpListener, signals: &std::io::PipeReader) -> ! {
        let mut clients: Vec<Client> = Vec::new();
        loop {
            let now = Instant::now();
            let ready = self.act(now);
            clients.retain(|client| now < client.deadline);

            let mut watched = vec![Watched::reading(signals), Watched::reading(listener)];
            watched.extend(clients.iter().map(|client| match client.stage {
                Stage::Asking(_) | Stage::Leaving(_) => Watched::reading(&client.stream),
                Stage::Told(..) => Watched::writing(&client.stream),
            }));
            let wake = clients.iter().map(|client| client.deadline).chain(self.next_act(now)).min();
            wait(&mut watched, wake.map(|wake| wake.saturating_duration_since(now)));

            if watched[0].happened() {
                // Taken out of the pipe, or it would be seen for ever.
                let _ = (&mut &*signals).read(&mut [0; 16]);
                self.stop.get_or_insert(Instant::now() + self.settings.grace);
            }
            let mut at = 2;
            clients.retain_mut(|client| {
                at += 1;
                !watched[at - 1].happened() || self.serve(client, ready)
            });
            if watched[1].happened() {
                welcome(listener, &mut clients);
            }
        }
    }

    /// Does what is due, which may be to end, and says whether it is ready.
    fn act(&mut self, now: Instant) -> bool {
        if self.stop.is_some_and(|stop| now >= stop) {
            say!("{} was told to end", self.settings.name);
            exit(0);
        }
        if let Some(file) = &self.settings.fail_file {
            self.order.look(file, now);
        }
        let time_has_come = now >= self.start + self.settings.ready_after;
        let mut held = self.stop.is_some();
        for (fail, since) in self.failures() {
            match fail {
                Fail::CrashAfter(time) if now >= since + time => {
                    say!("{} crashes, as it was told to", self.settings.name);
                    exit(1);
                }
                Fail::Exit(code) if time_has_come => {
                    say!("{} ends with {code}, as it was told to", self.settings.name);
                    exit(code.into());
                }
                Fail::NeverReady => held = true,
                Fail::Not | Fail::CrashAfter(_) | Fail::Exit(_) => {}
            }
        }
        let ready = time_has_come && !held;
        if ready && !self.said_ready {
            say!("{} is ready after {:?}", self.settings.name, now - self.start);
        }
        self.said_ready = ready;
        if ready && self.settings.run_once {
            exit(0);
        }
        ready
    }

    /// The next moment at which time alone changes something.
    fn next_act(&self, now: Instant) -> impl Iterator<Item = Instant> {
        let look = self.settings.fail_file.as_ref().map(|_| now + LOOK_AGAIN);
        let crash = self.failures().map(|(fail, since)| match fail {
            Fail::CrashAfter(time) => Some(since + time),
            Fail::Not | Fail::NeverReady | Fail::Exit(_) => None,
        });
        let ready = Some(self.start + self.settings.ready_after).filter(|ready| now < *ready);
        [look, ready, self.stop].into_iter().chain(crash).flatten()
    }

    fn failures(&self) -> [(Fail, Instant); 2] {
        [(self.settings.fail, self.start), (self.order.fail, self.order.since.unwrap_or(self.start))]
    }

    /// Goes on with one client; false once it is done with.
    fn serve(&self, client: &mut Client, ready: bool) -> bool {
        let mut bytes = [0; 4096];
        if let Stage::Asking(request) = &mut client.stage {
            match client.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => request.extend_from_slice(&bytes[..count]),
                Err(error) => return again(&error),
            }
            if request.windows(4).any(|end| end == b"\r\n\r\n") {
                client.stage = Stage::Told(self.answer(request, ready), 0);
            } else if request.len() > LONGEST_REQUEST {
                client.stage = Stage::Told(respond(431, "text/plain", "too long\n", true), 0);
            }
        }
        if let Stage::Told(answer, sent) = &mut client.stage {
            match client.stream.write(&answer[*sent..]) {
                Ok(0) => return false,
                Ok(count) => *sent += count,
                Err(error) => return again(&error),
            }
            if *sent == answer.len() {
                client.stage = Stage::Leaving(0);
                return client.stream.shutdown(Shutdown::Write).is_ok();
            }
        }
        if let Stage::Leaving(thrown_away) = &mut client.stage {
            match client.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => *thrown_away += count,
                Err(error) => return again(&error),
            }
            return *thrown_away < LONGEST_REST;
        }
        true
    }

    fn answer(&self, request: &[u8], ready: bool) -> Vec<u8> {
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let body = method != "HEAD";
        if !matches!(method, "GET" | "HEAD") {
            return respond(405, "text/plain", "only GET and HEAD\n", body);
        }
        match target.split('?').next().unwrap_or_default() {
            "/healthz" if ready => respond(200, "text/plain", "ready\n", body),
            "/healthz" => respond(503, "text/plain", "not ready\n", body),
            "/" => {
                let Settings { name, version, pod, .. } = &self.settings;
                let uptime = self.start.elapsed().as_secs_f64();
                let json = format!(
                    "{{\"name\":{},\"version\":{},\"pod\":{},\"uptimeSeconds\":{uptime:.3},\"ready\":{ready}}}\n",
                    quote(name),
                    quote(version),
                    quote(pod),
                );
                respond(200, "application/json", &json, body)
            }
            _ => respond(404, "text/plain", "not found\n", body),
        }
    }
}

/// True if the client may go on after this error.
fn again(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn respond(status: u16, kind: &str, body: &str, with_body: bool) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    };
    let length = body.len();
    let body = if with_body { body } else { "" };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

fn quote(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

// ------------------------------------------------------------------------------------------- the operating system

fn listen(port: u16) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes in everyone who waits. Who has been here longest makes room.
fn welcome(listener: &TcpListener, clients: &mut Vec<Client>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if clients.len() == PLACES {
                    clients.remove(0);
                }
                clients.push(Client { stream, stage: Stage::Asking(Vec::new()), deadline: Instant::now() + PATIENCE });
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {
                // No descriptors or no memory. Without a pause this would be a busy loop.
                clients.clear();
                std::thread::sleep(Duration::from_millis(50));
                return;
            }
        }
    }
}

const SIGINT: c_int = 2;
const SIGTERM: c_int = 15;
const POLLIN: c_short = 1;
const POLLOUT: c_short = 4;

#[repr(C)]
struct Watched {
    descriptor: c_int,
    wanted: c_short,
    seen: c_short,
}

impl Watched {
    fn reading(what: &impl AsRawFd) -> Self {
        Self { descriptor: what.as_raw_fd(), wanted: POLLIN, seen: 0 }
    }
    fn writing(what: &impl AsRawFd) -> Self {
        Self { descriptor: what.as_raw_fd(), wanted: POLLOUT, seen: 0 }
    }
    /// Something can be done with it, or it is broken, which the next read or write tells.
    fn happened(&self) -> bool {
        self.seen != 0
    }
}

unsafe extern "C" {
    fn poll(watched: *mut Watched, count: c_ulong, milliseconds: c_int) -> c_int;
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn write(descriptor: c_int, bytes: *const c_void, count: usize) -> isize;
}

fn wait(watched: &mut [Watched], time: Option<Duration>) {
    // Rounded up: waking too early would be a busy loop for the last millisecond.
    let milliseconds = time.map_or(-1, |time| c_int::try_from(time.as_millis() + 1).unwrap_or(c_int::MAX));
    // SAFETY: the structure is poll's own, and the slice is as long as it says.
    if unsafe { poll(watched.as_mut_ptr(), watched.len() as c_ulong, milliseconds) } < 0 {
        watched.iter_mut().for_each(|one| one.seen = 0);
    }
}

/// Where the signal handler writes to.
static WAKE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn tell(_: c_int) {
    // SAFETY: `write` may be called in a signal handler; the pipe is never closed.
    unsafe { write(WAKE.load(Ordering::Relaxed), [1u8].as_ptr().cast(), 1) };
}

/// As PID 1 the default of a signal is to be ignored, so both are caught. What can be read from the result is a signal.
fn catch_signals() -> std::io::PipeReader {
    let (reader, writer) = std::io::pipe().unwrap_or_else(|error| {
        say!("sample: failed to make a pipe: {error}");
        exit(1);
    });
    WAKE.store(writer.as_raw_fd(), Ordering::Relaxed);
    std::mem::forget(writer);
    for number in [SIGTERM, SIGINT] {
        // SAFETY: the handler only loads an atomic and writes.
        unsafe { signal(number, tell) };
    }
    reader
}
