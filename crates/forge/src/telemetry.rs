//! What the executor tells others while it works: spans to a collector (OTLP over HTTP, as JSON), figures to a Pushgateway.
//! In the background, bounded in time and in memory, and never a reason for a run to fail.
//!
//! What is sent goes to the address that was named and past no proxy.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forge_core::executor::HttpUrl;
use forge_core::name::clip;
use forge_core::trace::{Span, SpanId, TraceId, otlp};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::cluster::chain;
use crate::metrics::Metrics;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the end may be held up.
const LAST: Duration = Duration::from_secs(10);
/// Spans that wait to be sent; what comes on top is counted and lost.
const WAITING: usize = 4096;
/// Spans in one request.
const AT_ONCE: usize = 256;
/// Between two pushes of figures.
const PUSHED: Duration = Duration::from_secs(15);

fn client() -> Result<reqwest::Client, String> {
    let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    builder.connect_timeout(PATIENCE).timeout(PATIENCE).build().map_err(|error| chain(&error))
}

/// Sends a body; anything but success is an error in words.
async fn send(request: reqwest::RequestBuilder) -> Result<(), String> {
    let response = request.send().await.map_err(|error| chain(&error.without_url()))?;
    let status = response.status();
    if status.is_success() { Ok(()) } else { Err(format!("the answer was {status}")) }
}

/// Random identities of a trace and of a span.
pub(crate) fn identities() -> (TraceId, SpanId) {
    // The keys of a hasher come from the system.
    let bits = || RandomState::new().build_hasher().finish();
    (TraceId::from_bits(bits(), bits()), SpanId::from_bits(bits()))
}

/// Spans on their way to a collector.
pub(crate) struct Traces {
    waiting: Option<mpsc::Sender<Span>>,
    worker: Option<JoinHandle<()>>,
    /// Spans that did not arrive.
    lost: Arc<AtomicUsize>,
}

impl Traces {
    /// Sends to this collector, or nowhere.
    pub(crate) fn start(endpoint: Option<&HttpUrl>, trace: &TraceId, environment: &str) -> Self {
        let lost = Arc::new(AtomicUsize::new(0));
        let Some(endpoint) = endpoint else { return Self { waiting: None, worker: None, lost } };
        let (sender, receiver) = mpsc::channel(WAITING);
        let url = format!("{}/v1/traces", endpoint.as_str().trim_end_matches('/'));
        let (trace, environment, counted) = (trace.clone(), environment.to_owned(), lost.clone());
        let worker = tokio::spawn(deliver(url, trace, environment, receiver, counted));
        Self { waiting: Some(sender), worker: Some(worker), lost }
    }

    /// Tells of a span that has ended. Never waits.
    pub(crate) fn tell(&self, span: Span) {
        if let Some(waiting) = &self.waiting
            && waiting.try_send(span).is_err()
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits a moment until everything is sent; gives how many spans did not arrive.
    pub(crate) async fn finish(&mut self) -> usize {
        let left = self.waiting.take().map_or(0, |waiting| waiting.max_capacity().saturating_sub(waiting.capacity()));
        let Some(mut worker) = self.worker.take() else { return 0 };
        if tokio::time::timeout(LAST, &mut worker).await.is_err() {
            worker.abort();
            self.lost.fetch_add(left, Ordering::Relaxed);
        }
        self.lost.load(Ordering::Relaxed)
    }
}

async fn deliver(
    url: String,
    trace: TraceId,
    environment: String,
    mut waiting: mpsc::Receiver<Span>,
    lost: Arc<AtomicUsize>,
) {
    let client = client();
    let resource = [
        ("service.name", "forge-executor"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("deployment.environment.name", environment.as_str()),
    ];
    let mut batch = Vec::with_capacity(AT_ONCE);
    while waiting.recv_many(&mut batch, AT_ONCE).await > 0 {
        let sent = match &client {
            Ok(client) => {
                let body = otlp(&trace, &resource, &batch).to_string();
                send(client.post(&url).header("content-type", "application/json").body(body)).await
            }
            Err(why) => Err(why.clone()),
        };
        if sent.is_err() {
            lost.fetch_add(batch.len(), Ordering::Relaxed);
        }
        batch.clear();
    }
}

/// Figures on their way to a Pushgateway.
pub(crate) struct Pushes {
    stop: Option<oneshot::Sender<()>>,
    worker: Option<JoinHandle<Result<(), String>>>,
}

impl Pushes {
    /// Pushes to this gateway, or nowhere.
    pub(crate) fn start(gateway: Option<&HttpUrl>, environment: &str, metrics: Arc<Metrics>) -> Self {
        let Some(gateway) = gateway else { return Self { stop: None, worker: None } };
        let gateway = gateway.as_str().trim_end_matches('/');
        // One group for each environment: the last run of it is what is shown.
        let url = format!("{gateway}/metrics/job/forge-executor/environment/{environment}");
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(push(url, metrics, stopped));
        Self { stop: Some(stop), worker: Some(worker) }
    }

    /// Pushes once more; gives why that did not work, where it did not.
    pub(crate) async fn finish(&mut self) -> Option<String> {
        drop(self.stop.take());
        let mut worker = self.worker.take()?;
        match tokio::time::timeout(LAST, &mut worker).await {
            Ok(Ok(pushed)) => pushed.err().map(|why| clip(&why)),
            Ok(Err(_)) => Some("it ended by itself".to_owned()),
            Err(_) => {
                worker.abort();
                Some(format!("no answer within {} s", LAST.as_secs()))
            }
        }
    }
}

async fn push(url: String, metrics: Arc<Metrics>, mut stopped: oneshot::Receiver<()>) -> Result<(), String> {
    let client = client()?;
    let put = || send(client.put(&url).header("content-type", "text/plain; version=0.0.4").body(metrics.text()));
    let mut tick = tokio::time::interval(PUSHED);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Tried again with the next one; only the last has to arrive.
            _ = tick.tick() => drop(put().await),
            _ = &mut stopped => return put().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::Mutex;

    use forge_core::trace::SpanStatus;
    use jiff::Timestamp;
    use serde_json::Value;

    use super::*;
    use crate::metrics::Status;
    use crate::runtime::block_on;

    type Requests = Arc<Mutex<Vec<(String, String)>>>;

    /// Remembers what it is told, and answers with this code.
    fn collector(code: u16) -> (HttpUrl, Requests) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let requests = Requests::default();
        let kept = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(&stream);
                let (mut request, mut length) = (String::new(), 0);
                reader.read_line(&mut request).unwrap();
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap() == 0 || line.trim().is_empty() {
                        break;
                    }
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let request = request.trim().trim_end_matches(" HTTP/1.1").to_owned();
                kept.lock().unwrap().push((request, String::from_utf8(body).unwrap()));
                let mut stream = &stream;
                let _ = write!(stream, "HTTP/1.1 {code} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
        });
        (url, requests)
    }

    fn span(name: &str, parent: &SpanId) -> Span {
        let at = |second: i64| Timestamp::from_second(1_790_000_000 + second).unwrap();
        Span {
            id: parent.below(name),
            parent: Some(parent.clone()),
            name: name.to_owned(),
            started: at(0),
            ended: at(1),
            attributes: Vec::new(),
            status: SpanStatus::Done,
        }
    }

    #[test]
    fn spans_arrive_at_the_collector_and_the_end_waits_for_them() {
        let (url, requests) = collector(200);
        let lost = block_on(async {
            let (trace, root) = identities();
            let mut traces = Traces::start(Some(&url), &trace, "dev");
            for n in 0..600 {
                traces.tell(span(&format!("node {n}"), &root));
            }
            traces.finish().await
        })
        .unwrap();
        assert_eq!(lost, 0);
        let requests = requests.lock().unwrap().clone();
        assert!(requests.iter().all(|(request, _)| request == "POST /v1/traces"), "{requests:?}");
        let mut names = Vec::new();
        for (_, body) in &requests {
            let body: Value = serde_json::from_str(body).unwrap();
            let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
            assert!(spans.len() <= AT_ONCE);
            names.extend(spans.iter().map(|span| span["name"].as_str().unwrap().to_owned()));
        }
        assert_eq!(names, (0..600).map(|n| format!("node {n}")).collect::<Vec<_>>());
    }

    #[test]
    fn a_collector_that_refuses_or_is_not_there_loses_spans_and_nothing_else() {
        let gone: HttpUrl = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            format!("http://{}", listener.local_addr().unwrap()).parse().unwrap()
        };
        let (refusing, _) = collector(503);
        for url in [gone, refusing] {
            let lost = block_on(async {
                let (trace, root) = identities();
                let mut traces = Traces::start(Some(&url), &trace, "dev");
                traces.tell(span("a", &root));
                traces.tell(span("b", &root));
                traces.finish().await
            });
            assert_eq!(lost.unwrap(), 2);
        }
        // Nobody is told where nobody was named.
        let nobody = block_on(async {
            let (trace, root) = identities();
            let mut traces = Traces::start(None, &trace, "dev");
            traces.tell(span("a", &root));
            traces.finish().await
        });
        assert_eq!(nobody.unwrap(), 0);
    }

    #[test]
    fn figures_are_pushed_at_once_and_as_they_are_at_the_end() {
        let (url, requests) = collector(202);
        let why = block_on(async {
            let metrics = Arc::new(Metrics::of_executor());
            let mut pushes = Pushes::start(Some(&url), "dev", metrics.clone());
            metrics.status("deploy", "all", Status::Done);
            pushes.finish().await
        });
        assert_eq!(why.unwrap(), None);
        let requests = requests.lock().unwrap().clone();
        let (request, body) = requests.last().unwrap();
        assert_eq!(request, "PUT /metrics/job/forge-executor/environment/dev");
        assert!(body.contains("executor_action_status{action=\"deploy\",phase=\"all\",status=\"done\"} 1"), "{body}");
        let (refusing, _) = collector(500);
        let why = block_on(async {
            let mut pushes = Pushes::start(Some(&refusing), "dev", Arc::new(Metrics::of_executor()));
            pushes.finish().await
        });
        assert!(why.unwrap().unwrap().contains("500"));
    }

    #[test]
    fn no_two_identities_are_the_same() {
        let all: std::collections::BTreeSet<(TraceId, SpanId)> = (0..100).map(|_| identities()).collect();
        assert_eq!(all.len(), 100);
    }
}
