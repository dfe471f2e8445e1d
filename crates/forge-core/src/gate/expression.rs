//! Health rules: CEL over one object, bound to the variable `object` (SPEC section 3).
//!
//! Expressions come from a repository and objects from a cluster, so both are bounded before they reach the CEL crate,
//! which recurses while it parses and panics on syntax that it does not implement. Nothing here unwinds or catches: what
//! is not safe to run is refused by [`compile`], and lint calls the same function, so that a run never meets it first.

use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube_cel::cel::objects::Map;
use kube_cel::cel::{Context, ExecutionError, Program, Value};
use serde::{Deserialize, Serialize};

use crate::name::clip;

/// Longest expression, in bytes.
pub const MAX_EXPRESSION: usize = 4096;
/// Deepest nesting of brackets.
const MAX_BRACKETS: usize = 32;
/// Brackets and `?` altogether. The parser panics when it nests 96 deep instead of reporting it, and each of these nests
/// it once at most.
const MAX_NESTING: usize = 80;
/// Deepest tree: long chains of `.` and `+` nest to the left without any bracket.
const MAX_DEPTH: usize = 160;
/// Operators and dots, which bound the depth of the tree before the parser builds it.
const MAX_STEPS: usize = 1024;
/// `map`, `filter`, `all`, `exists` in one expression: each may multiply the work of the one before.
const MAX_LOOPS: usize = 8;
/// And inside one another.
const MAX_NESTED_LOOPS: usize = 2;
/// Deepest object.
const MAX_OBJECT: usize = 128;

/// Why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "type", content = "detail", rename_all = "camelCase")]
pub enum ExprError {
    /// Over [`MAX_EXPRESSION`].
    #[error("the expression has {0} bytes; at most {MAX_EXPRESSION} are allowed")]
    TooLong(usize),
    /// Over the limits of nesting, of steps or of loops.
    #[error("the expression is nested too deeply or too large: {0}")]
    TooDeep(String),
    /// Not CEL.
    #[error("not a CEL expression: {0}")]
    Syntax(String),
    /// CEL that this implementation does not run.
    #[error("{0} are not supported in health expressions")]
    Unsupported(String),
    /// A variable or function that does not exist.
    #[error("`{0}` is not known: the only variable is `object`")]
    Unknown(String),
    /// It gave something else than a boolean.
    #[error("the expression gives {0}, not true or false")]
    NotBoolean(String),
    /// A call that cannot succeed, whatever the object.
    #[error("{0}")]
    Call(String),
}

/// What an expression says about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// True.
    Holds,
    /// False, or something is not there yet; in words.
    NotYet(String),
    /// It can never hold as it is written.
    Broken(ExprError),
}

/// Says whether an expression can be used; for lint.
pub fn compile(expr: &str) -> Result<(), ExprError> {
    program(expr).map(drop)
}

/// Parses within bounds.
pub(super) fn program(expr: &str) -> Result<Program, ExprError> {
    if expr.len() > MAX_EXPRESSION {
        return Err(ExprError::TooLong(expr.len()));
    }
    bounded(expr)?;
    let program = Program::compile(expr).map_err(|errors| {
        let first = errors.errors.first().map(|e| e.msg.as_str());
        ExprError::Syntax(clip(first.unwrap_or("it does not parse")))
    })?;
    Walk::default().expr(program.expression(), &Scope { name: "object", outer: None })?;
    Ok(program)
}

/// Refuses text whose tree could be too deep. Counts inside strings as well: a quoted bracket must not hide a real one.
fn bounded(expr: &str) -> Result<(), ExprError> {
    let (mut depth, mut nesting, mut steps) = (0_usize, 0_usize, 0_usize);
    for c in expr.chars() {
        match c {
            '(' | '[' | '{' => {
                depth += 1;
                nesting += 1;
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '?' => nesting += 1,
            '.' | '+' | '-' | '*' | '/' | '%' | '!' | '<' | '>' | '=' | '&' | '|' => steps += 1,
            _ => {}
        }
        if depth > MAX_BRACKETS {
            return Err(ExprError::TooDeep(format!("more than {MAX_BRACKETS} brackets are open")));
        }
    }
    // Depth can be lowered by a closing bracket in a string; the number of opened ones cannot.
    if nesting > MAX_NESTING {
        return Err(ExprError::TooDeep(format!("more than {MAX_NESTING} brackets and conditions")));
    }
    if steps > MAX_STEPS {
        return Err(ExprError::TooDeep(format!("more than {MAX_STEPS} operators")));
    }
    Ok(())
}

/// Variables that an expression may name, innermost first.
struct Scope<'a> {
    name: &'a str,
    outer: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    fn has(&self, name: &str) -> bool {
        self.name == name || self.outer.is_some_and(|outer| outer.has(name))
    }
}

/// A walk over the tree that refuses what the interpreter would panic on, or never finish.
#[derive(Default)]
struct Walk {
    depth: usize,
    loops: usize,
    nested: usize,
}

impl Walk {
    fn expr(&mut self, expr: &IdedExpr, scope: &Scope<'_>) -> Result<(), ExprError> {
        if self.depth >= MAX_DEPTH {
            return Err(ExprError::TooDeep(format!("more than {MAX_DEPTH} steps in one another")));
        }
        self.depth += 1;
        self.inner(&expr.expr, scope)?;
        self.depth -= 1;
        Ok(())
    }

    fn inner(&mut self, expr: &Expr, scope: &Scope<'_>) -> Result<(), ExprError> {
        match expr {
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) if scope.has(name) => Ok(()),
            Expr::Ident(name) => Err(ExprError::Unknown(clip(name))),
            Expr::Select(select) => self.expr(&select.operand, scope),
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.expr(element, scope)),
            Expr::Call(call) => {
                match call.target.as_deref() {
                    // `math.greatest(…)`: the name before the dot is a library, not a variable.
                    Some(IdedExpr { expr: Expr::Ident(_), .. }) | None => {}
                    Some(target) => self.expr(target, scope)?,
                }
                call.args.iter().try_for_each(|argument| self.expr(argument, scope))
            }
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.expr(&entry.key, scope)?;
                    self.expr(&entry.value, scope)
                }
                EntryExpr::StructField(_) => Err(ExprError::Unsupported("messages".to_owned())),
            }),
            Expr::Comprehension(each) => {
                self.loops += 1;
                self.nested += 1;
                if self.loops > MAX_LOOPS || self.nested > MAX_NESTED_LOOPS {
                    let limit = format!("at most {MAX_LOOPS} loops, {MAX_NESTED_LOOPS} in one another");
                    return Err(ExprError::TooDeep(limit));
                }
                let item = Scope { name: &each.iter_var, outer: Some(scope) };
                let scope = Scope { name: &each.accu_var, outer: Some(&item) };
                for part in [&each.accu_init, &each.loop_cond, &each.loop_step, &each.result] {
                    self.expr(part, &scope)?;
                }
                self.nested -= 1;
                // The range is evaluated once, outside the loop.
                self.expr(&each.iter_range, item.outer.unwrap_or(&item))
            }
            Expr::Struct(_) => Err(ExprError::Unsupported("messages".to_owned())),
            Expr::Unspecified => Err(ExprError::Syntax("it is incomplete".to_owned())),
        }
    }
}

/// Asks an expression about an object.
pub(super) fn evaluate(program: &Program, object: &serde_json::Value) -> Verdict {
    let Some(value) = value(object, 0) else {
        return Verdict::NotYet("the object is nested too deeply to be read".to_owned());
    };
    let mut context = Context::default().with_all();
    context.add_variable_from_value("object", value);
    match program.execute(&context) {
        Ok(Value::Bool(true)) => Verdict::Holds,
        Ok(Value::Bool(false)) => Verdict::NotYet("it is false".to_owned()),
        Ok(other) => Verdict::Broken(ExprError::NotBoolean(kind(&other).to_owned())),
        Err(ExecutionError::NoSuchKey(key)) => Verdict::NotYet(format!("there is no `{}` yet", clip(&key))),
        Err(ExecutionError::UndeclaredReference(name)) => Verdict::Broken(ExprError::Unknown(clip(&name))),
        Err(
            error @ (ExecutionError::InvalidArgumentCount { .. }
            | ExecutionError::MissingArgumentOrTarget
            | ExecutionError::UnsupportedFunctionCallIdentifierType(_)
            | ExecutionError::UnsupportedFieldsConstruction(_)),
        ) => Verdict::Broken(ExprError::Call(clip(&error.to_string()))),
        // Most objects lack a value or have null in its place at first, so what depends on a value waits. Only the
        // kind of error is shown: its text prints values of the object.
        Err(ExecutionError::FunctionError { function, .. }) => {
            Verdict::NotYet(format!("`{}` does not apply to what is there", clip(&function)))
        }
        Err(ExecutionError::IndexOutOfBounds(_)) => Verdict::NotYet("a list is too short yet".to_owned()),
        Err(_) => Verdict::NotYet("an operator does not apply to what is there".to_owned()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => "a number",
        Value::String(_) => "a string",
        Value::Null => "null",
        _ => "something else",
    }
}

/// JSON as CEL sees it. Whole numbers are `int` as in Kubernetes; serde would make positive ones `uint`, which CEL does
/// not add to an `int`.
fn value(json: &serde_json::Value, depth: usize) -> Option<Value> {
    if depth > MAX_OBJECT {
        return None;
    }
    Some(match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(truth) => Value::Bool(*truth),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Value::Int(int),
            (None, Some(uint)) => Value::UInt(uint),
            (None, None) => Value::Float(number.as_f64()?),
        },
        serde_json::Value::String(text) => Value::String(Arc::new(text.clone())),
        serde_json::Value::Array(items) => {
            Value::List(Arc::new(items.iter().map(|item| value(item, depth + 1)).collect::<Option<_>>()?))
        }
        serde_json::Value::Object(fields) => {
            let fields = fields.iter().map(|(key, field)| Some((key.as_str().into(), value(field, depth + 1)?)));
            Value::Map(Map { map: Arc::new(fields.collect::<Option<_>>()?) })
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn ask(expr: &str, object: &serde_json::Value) -> Verdict {
        match program(expr) {
            Ok(program) => evaluate(&program, object),
            Err(error) => Verdict::Broken(error),
        }
    }

    #[test]
    fn an_expression_holds_is_false_or_waits_for_a_field() {
        let object = json!({"spec": {"replicas": 3}, "status": {"phase": "Ready", "ready": 3, "conditions": [
            {"type": "Ready", "status": "True"}], "none": null}});
        for expr in [
            "object.status.phase == 'Ready'",
            "object.status.ready + 0 == object.spec.replicas",
            "object.status.ready >= 3",
            "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
            "has(object.status.phase) && !has(object.status.gone)",
            "math.greatest(1, 2) == 2",
            "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
        ] {
            assert_eq!(ask(expr, &object), Verdict::Holds, "{expr}");
        }
        for expr in [
            "object.status.phase == 'Pending'",
            "object.status.gone == 1",
            "object.gone.gone.gone",
            "object.status.none.phase == 'x'",
            "object.status.conditions[7].type == 'x'",
            "object.status.none > 3",
        ] {
            assert!(matches!(ask(expr, &object), Verdict::NotYet(_)), "{expr}: {:?}", ask(expr, &object));
        }
        for expr in ["object.status", "1", "'true'", "self.status == 1", "nope(object)", "object.status.nope()", ""] {
            assert!(matches!(ask(expr, &object), Verdict::Broken(_)), "{expr}: {:?}", ask(expr, &object));
        }
    }

    #[test]
    fn hostile_expressions_are_refused_and_never_panic() {
        let long = |unit: &str| unit.repeat(MAX_EXPRESSION / unit.len());
        for expr in [
            long("("),
            long("["),
            long("{"),
            long("\")\"("),
            format!("{}true{}", "(".repeat(33), ")".repeat(33)),
            format!("object{}", ".a".repeat(2000)),
            format!("object{}", ".a".repeat(1000)),
            format!("object{}", "[0]".repeat(1300)),
            format!("1{}", "+1".repeat(1000)),
            format!("1{}", "+1".repeat(2000)),
            format!("{}true", "!".repeat(4000)),
            format!("{}1", "-".repeat(4000)),
            format!("{}true", "true?true:".repeat(400)),
            "x".repeat(MAX_EXPRESSION + 1),
            "Type{a: 1}".to_owned(),
            "a.b.C{}".to_owned(),
            "object.map(a, object.map(b, object.map(c, c)))".to_owned(),
            format!("[object]{}", ".map(x, [x, x])".repeat(20)),
            "has(object)".to_owned(),
            "object.map(1, 2)".to_owned(),
            "'\u{0}".to_owned(),
            "99999999999999999999".to_owned(),
            "\"\\ud800\"".to_owned(),
            "@result".to_owned(),
        ] {
            assert!(compile(&expr).is_err(), "{}", clip(&expr));
        }
        let widest = format!("{}true{}", "(".repeat(32), ")".repeat(32));
        let many = (0..40).map(|n| format!("object.a == {n}")).collect::<Vec<_>>().join(" || ");
        for expr in [widest, many, format!("object{} == 1", ".a".repeat(140))] {
            assert_eq!(compile(&expr), Ok(()), "{expr}");
        }
    }

    proptest! {
        #[test]
        fn whatever_compiles_also_runs(parts in prop::collection::vec(prop::sample::select(vec![
            "object", ".a", ".size()", "(", ")", "[", "]", "{", "}", "0", "-1", "9223372036854775807", "1.5", "1u", "'a'", "b'a'",
            "\"", "'", " == ", " && ", " || ", "!", "-", "+", "*", "/", "%", "<", " in ", "?", ":", ",", ".map(x, x)",
            ".all(x, x)", ".exists(x, x == 1)", "has(", "object.a", "null", "true", ".matches('a')", ".?a", "T{a: 1}",
            "duration('1h')", "timestamp('2020-01-01T00:00:00Z')", ".getFullYear()", "quantity('1')", ".substring(1, 0)",
            ".split('')", "[1,2]", ".sum()", ".min()", "'%s'.format([object])", "optional.none()", "dyn(", "size(", "int(",
            "string(", ".indexOf('')", ".lastIndexOf('x', 9)", ".charAt(9)", ".slice(3,1)", ".reverse()", "url('a')", "ip('1')",
        ]), 0..9)) {
            let _ = ask(&parts.concat(), &json!({"a": [1, -1, 2.5, null, "x", {"b": true}]}));
        }

        #[test]
        fn arbitrary_text_is_refused_or_runs(text in "\\PC{0,60}") {
            let _ = ask(&text, &json!({}));
        }
    }
}
