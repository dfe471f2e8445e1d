//! The state of an environment as one page that stands alone: no script, no reference to anywhere, a policy that forbids
//! both. Everything that comes from a cluster is text and stays text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;

use crate::graph::{Graph, NodeIx};
use crate::name::NodeId;
use crate::render::{escape, svg_with};
use crate::run::Phase;
use crate::view::{NodeState, StatusNode, Stranger};

/// Beyond this a picture is a grey area, and no browser likes it.
const MOST_DRAWN: usize = 600;

/// What the page shows.
pub struct Page<'p> {
    /// The heading, for example the environment.
    pub title: &'p str,
    /// The first lines: what, and its value.
    pub lead: &'p [(String, String)],
    /// The nodes.
    pub nodes: &'p [StatusNode],
    /// The graph, where there is one.
    pub graph: Option<&'p Graph>,
    /// Applications that no node stands for.
    pub strangers: &'p [Stranger],
    /// What is wrong, a line each.
    pub problems: &'p [String],
    /// What could not be read.
    pub notes: &'p [String],
    /// When all this was so.
    pub now: Timestamp,
}

/// Writes the page.
pub fn html(page: &Page<'_>) -> String {
    let mut text = String::from(HEAD);
    let title = escape(page.title);
    let _ = writeln!(text, "<title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>");
    for (what, value) in page.lead {
        let _ = writeln!(text, "<dt>{}</dt><dd>{}</dd>", escape(what), escape(value));
    }
    text.push_str("</dl>\n");
    picture(page, &mut text);
    list(&mut text, "What is wrong", page.problems.iter().cloned());
    text.push_str("<table>\n<thead><tr><th>node</th><th>state</th><th>sync</th><th>health</th><th>since</th><th>took</th><th>detail</th></tr></thead>\n<tbody>\n");
    for node in page.nodes {
        let state = node.state().as_str();
        // What was proven and is not well now was proven all the same.
        let phase = node.phase.map(Phase::as_str).filter(|phase| *phase != state);
        let phase = phase.map(|phase| format!("<br><small>{phase}</small>")).unwrap_or_default();
        let live = node.live.as_ref();
        let word = |word: Option<&String>| escape(word.map_or("-", String::as_str));
        let stale = if node.stale && live.is_some() { " <em>stale</em>" } else { "" };
        let since = node.since().map(|at| at.strftime("%FT%TZ").to_string()).unwrap_or_default();
        let took = node.took().map(|took| took.to_string()).unwrap_or_default();
        let told = node.told().into_iter().chain(node.staleness(page.now));
        let detail = told.map(|line| escape(&line)).collect::<Vec<_>>().join("<br>");
        let _ = writeln!(
            text,
            "<tr><td>{}<br><small>{}</small></td><td class=\"p-{state}\">{state}{phase}</td><td>{}{stale}</td><td>{}</td><td>{since}</td><td>{took}</td><td>{detail}</td></tr>",
            escape(node.node.as_str()),
            escape(&node.application.to_string()),
            word(live.and_then(|live| live.sync.as_ref())),
            word(live.and_then(|live| live.health.as_ref())),
        );
    }
    text.push_str("</tbody>\n</table>\n");
    list(
        &mut text,
        "Applications that are not in the graph",
        page.strangers.iter().map(|s| format!("{}: {}", s.application, s.why)),
    );
    list(&mut text, "Notes", page.notes.iter().cloned());
    text.push_str("</body>\n</html>\n");
    text
}

fn picture(page: &Page<'_>, text: &mut String) {
    let Some(graph) = page.graph else { return };
    let states: BTreeMap<NodeId, NodeState> = page.nodes.iter().map(|node| (node.node.clone(), node.state())).collect();
    let nodes: Vec<NodeIx> = page.nodes.iter().filter_map(|node| graph.find(&node.node)).collect();
    if nodes.is_empty() {
        return;
    }
    if nodes.len() > MOST_DRAWN {
        let _ = writeln!(text, "<p>{} nodes are too many for a picture.</p>", nodes.len());
        return;
    }
    let mut nodes = nodes;
    nodes.sort_unstable();
    let _ = writeln!(text, "<figure>\n{}</figure>", svg_with(graph, &nodes, &states));
}

fn list(text: &mut String, heading: &str, items: impl Iterator<Item = String>) {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return;
    }
    let _ = writeln!(text, "<h2>{}</h2>\n<ul>", escape(heading));
    for item in items {
        let _ = writeln!(text, "<li>{}</li>", escape(&item));
    }
    text.push_str("</ul>\n");
}

/// The class names must not be those of the picture, whose style reaches the whole page.
const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<style>
body{font:14px/1.45 system-ui,sans-serif;margin:1.5rem;color:#1f2937;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.1rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}dt{font-weight:600}dd{margin:0}
figure{margin:1rem 0;overflow-x:auto}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #d1d5db;overflow-wrap:anywhere}
small{color:#6b7280}em{color:#b45309}
.p-proven{color:#15803d}.p-healthy{color:#0369a1}.p-blocked{color:#7e22ce}.p-waiting,.p-gone{color:#6b7280}
.p-failed,.p-degraded,.p-missing{color:#b91c1c;font-weight:600}
.p-starting,.p-syncing,.p-proving,.p-deleting,.p-progressing{color:#b45309}
.p-unfinished,.p-stale,.p-out-of-sync,.p-suspended,.p-unknown{color:#a16207}
@media (prefers-color-scheme:dark){
body{color:#e5e7eb;background:#111827}th,td{border-color:#374151}small{color:#9ca3af}em{color:#f59e0b}
.p-proven{color:#4ade80}.p-healthy{color:#38bdf8}.p-blocked{color:#c084fc}.p-waiting,.p-gone{color:#9ca3af}
.p-failed,.p-degraded,.p-missing{color:#f87171}
.p-starting,.p-syncing,.p-proving,.p-deleting,.p-progressing{color:#fbbf24}
.p-unfinished,.p-stale,.p-out-of-sync,.p-suspended,.p-unknown{color:#facc15}
}
</style>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::NodeHealth;
    use crate::render::svg::STATE_STYLE;
    use crate::view::{ApplicationFacts, graph, listed, sample, standing};

    const HOSTILE: &str = "</td></table><script src=//evil>alert(1)</script><img src=x onerror='y'>\"\u{1b}";

    /// A page that shows nothing, at a minute past ten.
    fn empty() -> Page<'static> {
        let now = sample::at(60);
        Page { title: "dev", lead: &[], nodes: &[], graph: None, strangers: &[], problems: &[], notes: &[], now }
    }

    #[test]
    fn every_state_has_a_colour_in_the_picture_and_in_the_table_by_day_and_by_night() {
        let healths = [
            NodeHealth::Healthy,
            NodeHealth::Suspended,
            NodeHealth::Unknown,
            NodeHealth::Progressing,
            NodeHealth::Missing,
            NodeHealth::Degraded,
            NodeHealth::Failed,
        ];
        let states = Phase::ALL.map(NodeState::Run).into_iter().chain(healths.map(NodeState::Live));
        for state in states.chain([NodeState::OutOfSync, NodeState::Stale]) {
            let (word, has) = (state.as_str(), |style: &str, selector: &str| {
                let mut parts = style.split("@media");
                parts.all(|part| part.contains(&format!("{selector},")) || part.contains(&format!("{selector}{{")))
            });
            assert!(has(STATE_STYLE, &format!(".node.{word} rect")), "{word}");
            assert!(has(HEAD, &format!(".p-{word}")), "{word}");
        }
        assert_eq!((STATE_STYLE.matches("@media").count(), HEAD.matches("@media").count()), (1, 1));
    }

    #[test]
    fn what_was_proven_and_is_not_well_now_is_not_green_and_without_a_run_there_is_colour_too() {
        let says = |health: &str| {
            let (sync, health) = (Some("Synced".to_owned()), Some(health.to_owned()));
            Some(ApplicationFacts { sync, health, ..ApplicationFacts::default() })
        };
        let run = sample::all_proven("r-1", 0);
        let known = standing(std::slice::from_ref(&run)).unwrap();
        let graph = graph(&run.plan);
        let mut nodes = listed(Some(&known), std::iter::empty());
        for (node, live) in nodes.iter_mut().zip([says("Healthy"), says("Degraded"), says("Progressing"), None]) {
            node.live = live;
        }
        let page = html(&Page { nodes: &nodes, graph: graph.as_ref(), ..empty() });
        for (node, state) in [
            ("a/one", "proven"),
            ("a/two", "degraded"),
            ("b/one", "progressing"),
            ("argocd/proxy", "missing"),
            ("b/two", "missing"),
        ] {
            assert!(page.contains(&format!("{state}\" id=\"{node}\"><title>{node}: {state}</title>")), "{page}");
        }
        assert_eq!(page.matches(" proven\" id=").count(), 1, "{page}");
        assert!(page.contains("<td class=\"p-proven\">proven</td>"), "{page}");
        assert!(page.contains("<td class=\"p-degraded\">degraded<br><small>proven</small></td>"), "{page}");
        assert_eq!(page.matches("<td>the Application does not exist").count(), 2, "{page}");
        let (id, application) = ("a/one".parse().unwrap(), "argocd/dev-a-one".parse().unwrap());
        let node = StatusNode { live: says("Healthy"), ..StatusNode::unknown(&id, &application) };
        let page = html(&Page { nodes: &[node], graph: graph.as_ref(), ..empty() });
        assert!(page.contains("healthy\" id=\"a/one\"") && !page.contains(">proven<"), "{page}");
        assert!(page.contains("<td class=\"p-healthy\">healthy</td>"), "{page}");
    }

    #[test]
    fn a_page_says_how_long_a_node_took_and_how_old_the_comparison_is() {
        let run = sample::stored("r-1", 0);
        let known = standing(std::slice::from_ref(&run)).unwrap();
        let mut nodes = listed(Some(&known), std::iter::empty());
        nodes[1].live = Some(ApplicationFacts { compared: Some(sample::at(0)), ..ApplicationFacts::default() });
        nodes[1].stale = true;
        let page = html(&Page { nodes: &nodes, ..empty() });
        assert!(page.contains("<td>2026-11-16T10:00:13Z</td><td>12s</td>"), "{page}");
        assert!(page.contains("<td>46s</td><td>health stayed Degraded<br>stale: compared 1m ago</td>"), "{page}");
    }

    #[test]
    fn a_page_shows_phases_as_colours_and_hostile_messages_as_text() {
        let run = sample::stored("r-1", 0);
        let standing = standing(std::slice::from_ref(&run)).unwrap();
        let live = ApplicationFacts {
            sync: Some(HOSTILE.to_owned()),
            conditions: vec![HOSTILE.to_owned()],
            ..ApplicationFacts::default()
        };
        let nodes: Vec<StatusNode> = standing
            .nodes
            .into_iter()
            .map(|(view, application, run)| StatusNode {
                phase: Some(view.phase),
                detail: HOSTILE.to_owned(),
                since: view.since,
                run: Some(run),
                live: Some(live.clone()),
                stale: true,
                ..StatusNode::unknown(&view.node, &application)
            })
            .collect();
        let strangers =
            [Stranger { application: HOSTILE.to_owned(), why: HOSTILE.to_owned(), live: ApplicationFacts::default() }];
        let page = html(&Page {
            title: HOSTILE,
            lead: &[(HOSTILE.to_owned(), HOSTILE.to_owned())],
            nodes: &nodes,
            graph: graph(&run.plan).as_ref(),
            strangers: &strangers,
            problems: &[HOSTILE.to_owned()],
            notes: &[HOSTILE.to_owned()],
            now: sample::at(60),
        });
        for forbidden in ["<script", "<img", "onerror='", "\u{1b}"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        // The only address is the name of the SVG namespace.
        assert_eq!(page.matches("http").count(), 2, "{page}");
        assert_eq!(page.matches("<td").count(), 5 * 7);
        assert!(page.contains("class=\"node critical failed\" id=\"a/two\"><title>a/two: failed</title>"));
        assert!(page.contains("class=\"node syncing\"") && page.contains("<td class=\"p-blocked\">blocked</td>"));
        assert!(page.contains("default-src 'none'") && page.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn a_node_that_no_run_has_is_as_it_is_since_argo_cd_says_so() {
        let live = ApplicationFacts { since: Some(sample::at(0)), ..ApplicationFacts::default() };
        let (id, application) = ("a/one".parse().unwrap(), "argocd/dev-a-one".parse().unwrap());
        let node = StatusNode { live: Some(live), ..StatusNode::unknown(&id, &application) };
        let page = html(&Page { nodes: &[node], ..empty() });
        assert!(page.contains("<td>2026-11-16T10:00:00Z</td>"), "{page}");
    }

    #[test]
    fn a_page_without_a_graph_or_nodes_is_still_a_page() {
        let page = html(&empty());
        assert!(page.ends_with("</html>\n") && !page.contains("<svg") && !page.contains("<h2>"));
    }
}
