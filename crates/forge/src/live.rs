//! Work that is watched: a table that is drawn in place on a terminal, one line per event elsewhere. The simulation and a
//! real run are drawn by the same code.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use forge_core::duration::Duration;
use forge_core::name::NodeId;
use forge_core::run::{Phase, Record, RunAction, RunPlan};
use forge_core::view::{Event, Happened, Table, events, list, predicted};
use jiff::Timestamp;

use crate::output::{Output, Paint};

/// Hours, minutes and seconds.
pub(crate) fn clock(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// One picture of the work: what is counted, and what runs.
pub(crate) struct Frame {
    /// How long it has taken.
    pub(crate) clock: String,
    /// Of how much; in words.
    pub(crate) of: String,
    /// Nodes in all.
    pub(crate) nodes: usize,
    /// How many are what they are to become, and the word for it.
    pub(crate) done: usize,
    pub(crate) word: &'static str,
    pub(crate) waiting: usize,
    pub(crate) failed: usize,
    pub(crate) blocked: usize,
    /// What runs: its name, for how long, what it waits for.
    pub(crate) running: Vec<(String, String, String)>,
    /// What has not begun, and for what it waits; shown where there is room.
    pub(crate) pending: Vec<(String, Vec<String>)>,
}

impl Frame {
    fn text(&self, rows: usize, width: usize, output: &Output<'_>) -> String {
        let running = self.running.len();
        let mut text = cut(&self.head(), width, output);
        text.push('\n');
        let bar_width = width.saturating_sub(2).min(80);
        let filled = bar_width * self.done / self.nodes.max(1);
        let _ = writeln!(text, "[{}{}]", "#".repeat(filled), ".".repeat(bar_width - filled));
        let names = self.running.iter().map(|(name, _, _)| name).chain(self.pending.iter().map(|(name, _)| name));
        let column = names.map(|name| name.chars().count()).max().unwrap_or(0).clamp(20, 44);
        for (name, took, on) in self.running.iter().take(rows) {
            let _ = writeln!(text, "{}", cut(&[(None, format!("  {name:<column$} {took:>6}  {on}"))], width, output));
        }
        if running > rows {
            let _ = writeln!(text, "  … and {} more", running - rows);
        }
        for (name, on) in self.pending.iter().take(rows.saturating_sub(running)) {
            let line = format!("  {name:<column$}      -  waits for {}", list(on, width.saturating_sub(column + 32)));
            let _ = writeln!(text, "{}", cut(&[(Some(Paint::Dim), line)], width, output));
        }
        text
    }

    /// The first line, in parts with their paint.
    fn head(&self) -> Vec<(Option<Paint>, String)> {
        let mut head = vec![
            (Some(Paint::Strong), self.clock.clone()),
            (None, format!("  {}   ", self.of)),
            (Some(Paint::Good), self.done.to_string()),
            (None, format!(" {}, {} running, {} waiting", self.word, self.running.len(), self.waiting)),
        ];
        if self.failed + self.blocked > 0 {
            head.push((None, ", ".to_owned()));
            head.push((Some(Paint::Bad), self.failed.to_string()));
            head.push((None, format!(" failed, {} blocked", self.blocked)));
        }
        head
    }
}

/// A line of parts that ends where the terminal does: one that wraps is two, and one of them is never erased. Cut
/// before it is painted, because paint has no width.
fn cut(parts: &[(Option<Paint>, String)], width: usize, output: &Output<'_>) -> String {
    let mut left = width;
    let mut line = String::new();
    for (paint, part) in parts {
        let part: String = part.chars().take(left).collect();
        left -= part.chars().count();
        match paint {
            Some(paint) if !part.is_empty() => line.push_str(&output.paint(*paint, &part)),
            _ => line.push_str(&part),
        }
    }
    line
}

/// The part of a terminal that is drawn again and again.
#[derive(Default)]
pub(crate) struct Screen {
    /// What is there now.
    drawn: String,
}

impl Screen {
    /// Replaces what was drawn last; `above` stays there for good.
    pub(crate) fn show(&mut self, above: &str, frame: &Frame, output: &mut Output<'_>) {
        let (width, height) =
            terminal_size::terminal_size().map_or((100, 30), |(w, h)| (usize::from(w.0), usize::from(h.0)));
        let rows = height.saturating_sub(8).clamp(3, 14);
        let erased = self.erased();
        self.drawn = frame.text(rows, width.min(100), output);
        output.raw(&format!("{erased}{above}{}", self.drawn));
    }

    /// Says something that stays above what is drawn, for good.
    pub(crate) fn note(&self, text: &str, output: &mut Output<'_>) {
        output.raw(&format!("{}{text}\n{}", self.erased(), self.drawn));
    }

    /// What takes away what is there. From the first column on: a terminal may have echoed the key that interrupts.
    fn erased(&self) -> String {
        match self.drawn.lines().count() {
            0 => String::new(),
            lines => format!("\r\u{1b}[{lines}A\u{1b}[J"),
        }
    }
}

/// A run that is followed.
pub(crate) struct Live {
    /// Draw in place; else tell events.
    in_place: bool,
    screen: Screen,
    /// What was told already.
    told: BTreeSet<(NodeId, Happened)>,
    predicted: Option<Duration>,
}

impl Live {
    /// Follows a run; `in_place` is [`Output::live`].
    pub(crate) fn new(in_place: bool) -> Self {
        Self { in_place, screen: Screen::default(), told: BTreeSet::new(), predicted: None }
    }

    /// With the times of earlier runs to go by, the newest first.
    pub(crate) fn like(mut self, plan: &RunPlan, earlier: &[&Record]) -> Self {
        self.predicted = predicted(plan, earlier);
        self
    }

    /// Shows where the run is now. Events are told once each, however often this is called.
    pub(crate) fn update(&mut self, plan: &RunPlan, record: &Record, now: Timestamp, output: &mut Output<'_>) {
        let width = plan.nodes().map(|node| node.id.as_str().len()).max().unwrap_or(0).clamp(8, 40);
        let mut lines = String::new();
        for event in events(plan, record) {
            if self.told.insert((event.node.clone(), event.what)) {
                // What went wrong stays on the screen; the rest is in the table.
                let stays = matches!(event.what, Happened::Failed | Happened::Retrying(_) | Happened::Withdrawn(_));
                if !self.in_place || stays {
                    let _ = writeln!(lines, "{}", line(&event, width, output));
                }
            }
        }
        if self.in_place {
            let frame = frame(&Table::new(plan, record, now, self.predicted), plan.action);
            self.screen.show(&lines, &frame, output);
        } else if !lines.is_empty() {
            output.raw(&lines);
        }
    }

    /// Says something that is no event of the run. Whatever is said while a table is drawn must be said here, or the table
    /// is drawn over it.
    pub(crate) fn note(&self, text: &str, output: &mut Output<'_>) {
        self.screen.note(text, output);
    }
}

fn line(event: &Event, width: usize, output: &Output<'_>) -> String {
    let (paint, between) = match event.what {
        Happened::Proven(_) | Happened::Gone => (Paint::Good, " "),
        Happened::Failed => (Paint::Bad, ": "),
        Happened::Retrying(_) | Happened::Withdrawn(_) => (Paint::Busy, ": "),
        Happened::Blocked => (Paint::Busy, " "),
        _ => (Paint::Dim, " "),
    };
    let word = output.paint(paint, &event.what.to_string());
    let between = if event.detail.is_empty() { "" } else { between };
    // UTC, and says so: the run and whoever watches it need not be in one place.
    format!("{}  {:<width$}  {word}{between}{}", event.at.strftime("%TZ"), event.node.as_str(), event.detail)
}

fn frame(table: &Table, action: RunAction) -> Frame {
    let (done, path) = table.critical;
    let over = match action {
        RunAction::Deploy => Phase::Proven,
        RunAction::Teardown => Phase::Gone,
    };
    Frame {
        clock: clock(table.elapsed.seconds()),
        of: match table.predicted {
            Some(predicted) => format!("of about {}", clock(predicted.seconds())),
            None => format!("{done} of {path} on the critical path"),
        },
        nodes: table.nodes,
        done: table.count(over),
        word: over.as_str(),
        waiting: table.count(Phase::Waiting),
        failed: table.count(Phase::Failed),
        blocked: table.count(Phase::Blocked),
        running: table.running.iter().map(|r| (r.node.to_string(), r.took.to_string(), r.on.clone())).collect(),
        pending: table
            .waiting
            .iter()
            .map(|(node, open)| (node.to_string(), open.iter().map(ToString::to_string).collect()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use forge_core::run::Withdrawn;

    use super::*;
    use crate::run::sample;

    /// A run of one node, as its ConfigMaps hold it.
    fn run(decision: &str) -> (RunPlan, Record) {
        let plan = sample::plan(&["db"]);
        let record = format!(
            r#"{{"header": {{"run": "r-1", "environment": "dev", "scope": "platform", "runner": "plugin", "nodes": 1,
                "plan": "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "started": "2026-11-16T12:03:00Z", "deadline": "2026-11-16T13:03:00Z"}},
            "entries": {{"argocd/db": {{"node": "argocd/db", "since": "2026-11-16T12:04:00Z", "decision": {decision},
                "started": "2026-11-16T12:03:41Z", "asked": [{{"attempt": 1, "at": "2026-11-16T12:03:42Z"}}]}}}}}}"#
        );
        (plan, serde_json::from_str(&record).unwrap())
    }

    const WAITS: &str = r#"{"type": "wait", "on": {"type": "operation", "attempt": 1, "message": "x"}, "until": "2026-11-16T12:09:00Z"}"#;
    const FAILED: &str =
        r#"{"type": "failed", "class": "unhealthy", "why": {"type": "unhealthy", "health": "Degraded"}}"#;

    const PROVEN: &str = r#"{"type": "proven", "run": "r-1", "node": "argocd/db", "application": "argocd/db",
        "attempt": 1, "synced": true, "proof": "revision", "commit": null, "revisions": [], "render": null,
        "workloads": {}, "images": {}, "notRunning": [], "sidecars": {}, "objects": [], "health": "Healthy"}"#;

    /// What is written to stderr, and nothing else is written.
    fn written(write: impl FnOnce(&mut Output<'_>)) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        write(&mut Output::new(&mut out, &mut err, true));
        assert!(out.is_empty());
        String::from_utf8(err).unwrap()
    }

    fn told(live: &mut Live, decision: &str) -> String {
        told_of(live, &run(decision))
    }

    fn told_of(live: &mut Live, (plan, record): &(RunPlan, Record)) -> String {
        let now = "2026-11-16T12:04:30Z".parse().unwrap();
        written(|output| live.update(plan, record, now, output))
    }

    /// The run after its node lost a proof, at that moment or later.
    fn withdrawn(decision: &str, since: &str) -> (RunPlan, Record) {
        let (plan, mut record) = run(decision);
        let entry = record.entries.values_mut().next().unwrap();
        entry.withdrawn = Some(Withdrawn { times: 1, at: "2026-11-16T12:05:00Z".parse().unwrap() });
        entry.since = since.parse().unwrap();
        (plan, record)
    }

    #[test]
    fn no_line_of_the_table_is_wider_than_the_terminal() {
        let running = |n: usize| (format!("shop/application-{n}"), "1m".to_owned(), "health is Progressing".repeat(5));
        let frame = Frame {
            clock: "00:01:30".to_owned(),
            of: "of about 00:12:00".to_owned(),
            nodes: 460,
            done: 400,
            word: "proven",
            waiting: 31,
            failed: 1,
            blocked: 22,
            running: (0..12).map(running).collect(),
            pending: vec![("shop/top".to_owned(), (0..9).map(|n| format!("shop/application-{n}")).collect())],
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let output = Output::new(&mut out, &mut err, true);
        for width in [100, 80, 40, 20] {
            let text = frame.text(14, width, &output);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        }
        let text = frame.text(14, 80, &output);
        let head = "00:01:30  of about 00:12:00   400 proven, 12 running, 31 waiting, 1 failed, 22 b";
        assert_eq!(text.lines().next(), Some(head));
        assert_eq!(text.lines().last(), Some("  shop/top                  -  waits for shop/application-0 and 8 more"));
    }

    #[test]
    fn elsewhere_than_on_a_terminal_every_event_is_one_line_and_told_once() {
        let mut live = Live::new(false);
        assert_eq!(told(&mut live, WAITS), "12:03:41Z  argocd/db  started\n12:03:42Z  argocd/db  syncing\n");
        assert_eq!(told(&mut live, WAITS), "");
        assert_eq!(told(&mut live, FAILED), "12:04:00Z  argocd/db  failed: health stayed Degraded\n");
        assert_eq!(told(&mut live, FAILED), "");
    }

    #[test]
    fn on_a_terminal_the_table_is_replaced_and_a_failure_stays_above_it() {
        let mut live = Live::new(true);
        let first = told(&mut live, WAITS);
        assert!(
            first.starts_with("00:01:30  0 of 1 on the critical path   0 proven, 1 running, 0 waiting\n["),
            "{first}"
        );
        assert!(first.contains("  argocd/db               49s  sync 1 runs: x\n"), "{first}");
        assert!(first.lines().all(|line| line.chars().count() <= 100));
        let second = told(&mut live, FAILED);
        assert!(
            second.starts_with("\r\u{1b}[3A\u{1b}[J12:04:00Z  argocd/db  failed: health stayed Degraded\n00:01:30")
        );
        assert!(!told(&mut live, FAILED).contains("health stayed"));
    }

    #[test]
    fn what_is_said_meanwhile_stays_above_the_table_and_the_table_is_whole_below_it() {
        let mut live = Live::new(true);
        assert_eq!(written(|output| live.note("the Job has not begun", output)), "the Job has not begun\n");
        let table = told(&mut live, WAITS);
        assert_eq!(table.lines().count(), 3);
        let noted = written(|output| live.note("stopping", output));
        assert_eq!(noted, format!("\r\u{1b}[3A\u{1b}[Jstopping\n{table}"));
        assert_eq!(told(&mut live, WAITS), format!("\r\u{1b}[3A\u{1b}[J{table}"));
        // Elsewhere it is a line like others.
        let mut live = Live::new(false);
        told(&mut live, WAITS);
        assert_eq!(written(|output| live.note("stopping", output)), "stopping\n");
    }

    #[test]
    fn a_proof_that_is_withdrawn_is_told_and_stays_above_the_table_and_so_the_next_proof_is_told() {
        let fell = withdrawn(WAITS, "2026-11-16T12:05:00Z");
        let line = "12:05:00Z  argocd/db  proof withdrawn: it did not stay Healthy\n";
        let mut live = Live::new(false);
        assert!(told(&mut live, PROVEN).ends_with("12:04:00Z  argocd/db  proven after 19s\n"));
        assert_eq!(told_of(&mut live, &fell), line);
        let again = withdrawn(PROVEN, "2026-11-16T12:06:00Z");
        assert_eq!(told_of(&mut live, &again), "12:06:00Z  argocd/db  proven again after 2m19s\n");
        assert_eq!(told_of(&mut live, &again), "");
        let mut live = Live::new(true);
        told(&mut live, PROVEN);
        let above = told_of(&mut live, &fell);
        assert!(above.contains(&format!("\u{1b}[J{line}")), "{above}");
        assert!(!told_of(&mut live, &fell).contains("withdrawn"));
    }
}
