//! What a long build shows: one live line on a terminal, one line per event elsewhere.

use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use forge_core::name::clean;

/// A thing that is being built.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version, if it has one.
    pub version: Option<&'a str>,
    /// Its place among what is built now, from 1.
    pub number: usize,
    /// How many are built now.
    pub total: usize,
}

impl Step<'_> {
    fn title(&self) -> String {
        self.version.map_or_else(|| self.name.to_owned(), |version| format!("{} {version}", self.name))
    }
}

/// Who is told how a build goes.
pub trait Progress {
    /// Another build holds the cache, in this process if it is known; this one waits for it.
    fn waiting(&mut self, holder: Option<u32>);
    /// Something that the user should read.
    fn note(&mut self, text: &str);
    /// A thing is begun.
    fn started(&mut self, step: Step<'_>);
    /// What is done for it now. Called often, also to let time pass.
    fn doing(&mut self, what: &str);
    /// It is built.
    fn finished(&mut self);
    /// It failed; the error is shown by whoever gets it.
    fn failed(&mut self);
    /// All is built.
    fn done(&mut self, built: usize, elapsed: Duration);
}

/// Nobody.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn waiting(&mut self, _: Option<u32>) {}
    fn note(&mut self, _: &str) {}
    fn started(&mut self, _: Step<'_>) {}
    fn doing(&mut self, _: &str) {}
    fn finished(&mut self) {}
    fn failed(&mut self) {}
    fn done(&mut self, _: usize, _: Duration) {}
}

/// Whoever reads stderr: a live line if that is a terminal that can show one, otherwise a line per event.
pub fn of_stderr() -> Writing<io::Stderr> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    Writing::new(io::stderr(), io::stderr().is_terminal() && !dumb)
}

/// Somebody who reads lines.
#[derive(Debug)]
pub struct Writing<W> {
    out: W,
    live: bool,
    step: Option<(String, Instant)>,
    shown: Option<Instant>,
}

/// How often the live line is drawn; more is flicker.
const DRAW: Duration = Duration::from_millis(100);

impl<W: Write> Writing<W> {
    /// One who gets lines here, with a live line or without.
    pub fn new(out: W, live: bool) -> Self {
        Self { out, live, step: None, shown: None }
    }

    /// Nothing can be done about a reader who is gone, and it is no reason to stop a build.
    fn line(&mut self, text: &str) {
        let clear = if self.live { "\r\x1b[K" } else { "" };
        let _ = writeln!(self.out, "{clear}{}", clean(text));
        self.shown = None;
    }
}

/// Seconds, with one decimal where that says something.
fn seconds(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

impl<W: Write> Progress for Writing<W> {
    fn waiting(&mut self, holder: Option<u32>) {
        let whose = holder.map_or_else(|| "another build".to_owned(), |pid| format!("the build of process {pid}"));
        self.line(&format!("waiting for {whose} to end"));
    }

    fn note(&mut self, text: &str) {
        self.line(text);
    }

    fn started(&mut self, step: Step<'_>) {
        let title = format!("[{}/{}] {}", step.number, step.total, step.title());
        if !self.live {
            self.line(&format!("{title}: started"));
        }
        self.step = Some((title, Instant::now()));
        self.doing("");
    }

    fn doing(&mut self, what: &str) {
        let Some((title, started)) = self.step.as_ref().filter(|_| self.live) else { return };
        if self.shown.is_some_and(|shown| shown.elapsed() < DRAW) {
            return;
        }
        let elapsed = started.elapsed().as_secs();
        // Wrapping is off while it is drawn, so a long line stays one line and the next one overwrites it.
        let _ = write!(self.out, "\r\x1b[K\x1b[?7l{title}  {elapsed} s  {}\x1b[?7h", clean(what));
        let _ = self.out.flush();
        self.shown = Some(Instant::now());
    }

    fn finished(&mut self) {
        if let Some((title, started)) = self.step.take() {
            self.line(&format!("{title}: {}", seconds(started.elapsed())));
        }
    }

    fn failed(&mut self) {
        if let Some((title, started)) = self.step.take() {
            self.line(&format!("{title}: failed after {}", seconds(started.elapsed())));
        }
    }

    fn done(&mut self, built: usize, elapsed: Duration) {
        let things = if built == 1 { "1 thing".to_owned() } else { format!("{built} things") };
        self.line(&format!("built {things} in {}", seconds(elapsed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(live: bool) -> String {
        let mut out = Vec::new();
        let mut progress = Writing::new(&mut out, live);
        progress.waiting(Some(7));
        progress.started(Step { name: "helm", version: Some("v3"), number: 1, total: 2 });
        progress.doing("compiling\x07 this");
        progress.finished();
        progress.started(Step { name: "charts", version: None, number: 2, total: 2 });
        progress.failed();
        progress.done(1, Duration::from_secs(75));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn without_a_terminal_there_is_a_line_at_the_start_and_one_at_the_end() {
        assert_eq!(
            shown(false),
            "waiting for the build of process 7 to end\n\
             [1/2] helm v3: started\n[1/2] helm v3: 0.0 s\n\
             [2/2] charts: started\n[2/2] charts: failed after 0.0 s\n\
             built 1 thing in 75 s\n"
        );
    }

    #[test]
    fn on_a_terminal_only_finished_things_take_a_line() {
        let shown = shown(true);
        assert_eq!(shown.matches('\n').count(), 4);
        assert!(shown.contains("[1/2] helm v3  0 s"));
        assert!(!shown.contains('\x07'));
    }
}
