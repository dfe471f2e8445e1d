//! Data on stdout, everything else on stderr. A closed pipe is no error: the reader has had enough.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

use forge_core::finding::Finding;

use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Where a command writes, and how.
pub(crate) struct Output<'o> {
    out: &'o mut dyn Write,
    err: &'o mut dyn Write,
    colour: bool,
    /// Stderr is a terminal that can go back to what it has drawn: live tables go there.
    pub(crate) live: bool,
}

/// What colours are used for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Paint {
    Bad,
    Good,
    Busy,
    Dim,
    Strong,
}

impl<'o> Output<'o> {
    pub(crate) fn new(out: &'o mut dyn Write, err: &'o mut dyn Write, no_colour: bool) -> Self {
        let live = io::stderr().is_terminal() && can_draw(std::env::var_os("TERM").as_deref());
        Self { out, err, colour: live && io::stdout().is_terminal() && !no_colour, live }
    }

    /// Data.
    pub(crate) fn data(&mut self, text: &str) -> Result<(), Failure> {
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::write("standard output", &error)),
            _ => Ok(()),
        }
    }

    /// Everything else. There is nowhere to report that it could not be written.
    pub(crate) fn say(&mut self, text: &str) {
        let _ = writeln!(self.err, "{text}");
    }

    /// How long a line of data may be: as the terminal that it goes to is wide. Elsewhere nothing limits it.
    pub(crate) fn columns(&self) -> Option<usize> {
        let width = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        io::stdout().is_terminal().then(width).flatten()
    }

    /// As it is, to stderr.
    pub(crate) fn raw(&mut self, text: &str) {
        let _ = self.err.write_all(text.as_bytes());
        let _ = self.err.flush();
    }

    pub(crate) fn paint(&self, paint: Paint, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match paint {
            Paint::Bad => "31",
            Paint::Good => "32",
            Paint::Busy => "33",
            Paint::Dim => "2",
            Paint::Strong => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    pub(crate) fn finding(&self, finding: &Finding) -> String {
        let code = self.paint(Paint::Bad, finding.code.id());
        let place = self.paint(Paint::Strong, &finding.place.to_string());
        let mut text = format!("{place}: {code} {}\n", finding.message);
        if let Some(fix) = &finding.fix {
            text.push_str(&format!("    {} {fix}\n", self.paint(Paint::Good, "fix:")));
        }
        text
    }

    /// A failure, with what is behind it and what to do next.
    pub(crate) fn failure(&mut self, failure: &Failure) -> Exit {
        const MOST: usize = 20;
        for finding in failure.findings.iter().take(MOST) {
            let text = self.finding(finding);
            self.raw(&text);
        }
        if failure.findings.len() > MOST {
            self.say(&format!("… and {} more", failure.findings.len() - MOST));
        }
        let error = self.paint(Paint::Bad, &format!("error[{}]", failure.code));
        self.say(&format!("{error}: {}", failure.message));
        let hint = failure.hint.clone().unwrap_or_else(|| format!("`forge lint --explain {}`", failure.code));
        self.say(&format!("\nhint: {hint}"));
        failure.exit()
    }
}

/// Whether a terminal of this kind knows how to move its cursor, and what a colour is. What an editor or a CI server shows
/// its output in often does not, and says so.
fn can_draw(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_in_place_on_a_terminal_that_cannot_move_its_cursor() {
        assert!(!can_draw(None));
        assert_eq!(
            ["", "dumb", "xterm-256color", "linux"].map(|term| can_draw(Some(OsStr::new(term)))),
            [false, false, true, true]
        );
    }
}
