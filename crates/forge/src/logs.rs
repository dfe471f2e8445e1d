//! Logs of the executor (SPEC.md section 5): one line for each thing that happens, for people or as JSON, on stderr. Every
//! line has the same fields, so that programs can rely on them.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use forge_core::executor::{Action, Level, LogFormat};
use forge_core::name::clean;
use forge_core::trace::{SpanId, TraceId};
use jiff::Timestamp;
use serde_json::json;

/// Where logs go, and which.
pub(crate) struct Logs {
    level: Level,
    format: LogFormat,
    action: Action,
    trace: TraceId,
    span: SpanId,
    out: Mutex<Box<dyn Write + Send>>,
}

impl Logs {
    pub(crate) fn new(
        (level, format): (Level, LogFormat),
        action: Action,
        (trace, span): (TraceId, SpanId),
        out: Box<dyn Write + Send>,
    ) -> Self {
        Self { level, format, action, trace, span, out: Mutex::new(out) }
    }

    /// Something that happened in a phase, to a component if it was one.
    pub(crate) fn log(&self, level: Level, phase: &str, component: &str, message: &str) {
        self.log_at(Timestamp::now(), level, phase, component, message);
    }

    /// The same, at a moment that was recorded.
    pub(crate) fn log_at(&self, at: Timestamp, level: Level, phase: &str, component: &str, message: &str) {
        if level > self.level {
            return;
        }
        let line = self.line(at, level, phase, component, message);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // There is nowhere to report that it could not be written.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }

    fn line(&self, at: Timestamp, level: Level, phase: &str, component: &str, message: &str) -> String {
        let (action, level, trace, span) = (self.action.as_str(), level.as_str(), &self.trace, &self.span);
        match self.format {
            LogFormat::Json => json!({
                "timestamp": format!("{at:.3}"), "level": level, "action": action, "phase": phase,
                "component": component, "message": message, "trace_id": trace, "span_id": span,
            })
            .to_string(),
            LogFormat::Text => {
                let about = if component.is_empty() { String::new() } else { format!(" {}:", clean(component)) };
                format!("{at:.3} {level:<5} {action} {phase}{about} {} trace={trace}/{span}", clean(message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: Level, format: LogFormat) -> String {
        let kept = Kept::default();
        let ids = (TraceId::from_bits(1, 2), SpanId::from_bits(3));
        let logs = Logs::new((level, format), Action::Deploy, ids, Box::new(kept.clone()));
        let at = "2026-11-16T12:03:41.5Z".parse().unwrap();
        let all = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
        for level in all {
            logs.log_at(at, level, "orchestration", "shop/api", "proven\n\u{1b}[2Jafter 12s");
        }
        logs.log_at(at, Level::Error, "bootstrap", "", "it failed");
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_of_json_has_exactly_the_fields_of_the_contract() {
        let text = logged(Level::Trace, LogFormat::Json);
        assert_eq!(text.lines().count(), 6);
        for line in text.lines() {
            let object: Value = serde_json::from_str(line).unwrap();
            let keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
            let wanted = ["timestamp", "level", "action", "phase", "component", "message", "trace_id", "span_id"];
            assert_eq!(keys, wanted);
        }
        let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first["timestamp"], "2026-11-16T12:03:41.500Z");
        assert_eq!(first["message"], "proven\n\u{1b}[2Jafter 12s");
        assert_eq!((&first["level"], &first["component"]), (&json!("error"), &json!("shop/api")));
        assert_eq!(first["trace_id"], "00000000000000010000000000000002");
    }

    #[test]
    fn a_level_lets_itself_and_what_is_worse_through() {
        let count = |level| logged(level, LogFormat::Text).lines().count() - 1;
        let counts = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace].map(count);
        assert_eq!(counts, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_line_for_people_is_one_line_whatever_was_said() {
        let text = logged(Level::Error, LogFormat::Text);
        let trace = "trace=00000000000000010000000000000002/0000000000000003";
        let expected = format!(
            "2026-11-16T12:03:41.500Z error deploy orchestration shop/api: proven\u{fffd}\u{fffd}[2Jafter 12s {trace}\n2026-11-16T12:03:41.500Z error deploy bootstrap it failed {trace}\n"
        );
        assert_eq!(text, expected);
    }
}
