//! The graph as SVG, drawn here: waves are columns, stacks are boxes that share rows where they do not meet, edges are
//! drawn as they are written (stack to stack, node to node), the critical path stands out. Whole numbers only, so that
//! the bytes are the same everywhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::format::Reference;
use crate::graph::{Graph, NodeIx};
use crate::name::{NodeId, StackName};
use crate::view::NodeState;

const NODE_HEIGHT: usize = 26;
const ROW: usize = 34;
const COLUMN_GAP: usize = 64;
const PAD: usize = 12;
const HEADER: usize = 24;
const STACK_GAP: usize = 22;
const MARGIN: usize = 24;
const TOP: usize = 64;

/// Colours of the states, and of everything else where the reader prefers dark. What no run has proven has not the colour of
/// what one has, however Healthy it is.
pub(super) const STATE_STYLE: &str = "<style>
.node.starting rect,.node.syncing rect,.node.proving rect,.node.deleting rect,.node.progressing rect{fill:#fef3c7;stroke:#b45309;stroke-width:2}
.node.proven rect{fill:#dcfce7;stroke:#15803d}
.node.healthy rect{fill:#e0f2fe;stroke:#0369a1}
.node.failed rect,.node.degraded rect,.node.missing rect{fill:#fee2e2;stroke:#b91c1c;stroke-width:3}
.node.blocked rect{fill:#f3e8ff;stroke:#7e22ce;stroke-dasharray:4 3}
.node.unfinished rect,.node.stale rect,.node.out-of-sync rect,.node.suspended rect,.node.unknown rect{fill:#fefce8;stroke:#a16207;stroke-dasharray:4 3}
.node.waiting rect{fill:#f9fafb;stroke:#9ca3af}
.node.gone rect{fill:#f9fafb;stroke:#9ca3af;stroke-dasharray:2 3}
@media (prefers-color-scheme:dark){
svg>rect{fill:#111827}text{fill:#e5e7eb}.wave{fill:#9ca3af}.stack{fill:#1f2937;stroke:#374151}.label{fill:#d1d5db}
.node rect,.node.waiting rect,.node.gone rect{fill:#111827;stroke:#64748b}.node.critical rect{fill:#431407}
.edge{stroke:#64748b}.between{stroke:#475569}
.node.starting rect,.node.syncing rect,.node.proving rect,.node.deleting rect,.node.progressing rect{fill:#451a03;stroke:#f59e0b}
.node.proven rect{fill:#052e16;stroke:#22c55e}
.node.healthy rect{fill:#082f49;stroke:#38bdf8}
.node.failed rect,.node.degraded rect,.node.missing rect{fill:#450a0a;stroke:#f87171}
.node.blocked rect{fill:#3b0764;stroke:#c084fc}
.node.unfinished rect,.node.stale rect,.node.out-of-sync rect,.node.suspended rect,.node.unknown rect{fill:#292524;stroke:#facc15}
}
</style>
";

#[derive(Clone, Copy)]
struct Rect {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

impl Rect {
    fn left(self) -> (usize, usize) {
        (self.x, self.y + self.height / 2)
    }
    fn right(self) -> (usize, usize) {
        (self.x + self.width, self.y + self.height / 2)
    }
}

/// One stack to be placed: its columns and how many rows it needs.
struct Block<'g> {
    name: &'g StackName,
    layer: Option<u32>,
    first: usize,
    last: usize,
    rows: usize,
    cells: BTreeMap<usize, Vec<NodeIx>>,
}

/// Draws these nodes.
pub fn svg(graph: &Graph, nodes: &[NodeIx]) -> String {
    svg_with(graph, nodes, &BTreeMap::new())
}

/// Draws these nodes, coloured by their states; a node without one is drawn as usual.
pub fn svg_with(graph: &Graph, nodes: &[NodeIx], states: &BTreeMap<NodeId, NodeState>) -> String {
    let longest = nodes.iter().map(|node| graph.node(*node).id.as_str().chars().count()).max().unwrap_or(10);
    let node_width = longest.clamp(12, 34) * 7 + 16;
    let column = node_width + COLUMN_GAP;
    let blocks = blocks(graph, nodes);
    let mut boxes: BTreeMap<&StackName, Rect> = BTreeMap::new();
    let mut places: BTreeMap<NodeIx, Rect> = BTreeMap::new();
    // Each track is a run of rows; a stack goes into the first track whose columns from its first on are free.
    let mut tracks: Vec<(usize, usize)> = Vec::new();
    let mut assigned: Vec<usize> = Vec::new();
    for block in &blocks {
        let free = tracks.iter().position(|(end, _)| *end < block.first + 1);
        let track = free.unwrap_or_else(|| {
            tracks.push((0, 0));
            tracks.len() - 1
        });
        if let Some((end, rows)) = tracks.get_mut(track) {
            *end = block.last + 1;
            *rows = (*rows).max(block.rows);
        }
        assigned.push(track);
    }
    let heights: Vec<usize> = tracks.iter().map(|(_, rows)| HEADER + rows * ROW + PAD).collect();
    let top = |track: usize| TOP + heights.iter().take(track).map(|height| height + STACK_GAP).sum::<usize>();
    for (block, track) in blocks.iter().zip(&assigned) {
        let (x, y) = (MARGIN + block.first * column, top(*track));
        let width = (block.last - block.first) * column + node_width + 2 * PAD;
        boxes.insert(block.name, Rect { x, y, width, height: HEADER + block.rows * ROW + PAD });
        for (wave, cell) in &block.cells {
            for (row, node) in cell.iter().enumerate() {
                let rect = Rect {
                    x: MARGIN + wave * column + PAD,
                    y: y + HEADER + row * ROW,
                    width: node_width,
                    height: NODE_HEIGHT,
                };
                places.insert(*node, rect);
            }
        }
    }
    let waves = nodes.iter().map(|node| graph.wave(*node) + 1).max().unwrap_or(0);
    let width = (2 * MARGIN + waves * column).max(480);
    let height = top(heights.len()) + MARGIN;
    let critical = graph.critical_path_of(nodes);
    let mut text = head(width, height);
    if !states.is_empty() {
        text.push_str(STATE_STYLE);
    }
    let bound: crate::duration::Duration = critical.iter().map(|node| graph.node(*node).budget()).sum();
    let _ = writeln!(
        text,
        "<text class=\"title\" x=\"{MARGIN}\" y=\"26\">{} nodes · {} stacks · {waves} waves · critical path {} nodes, at most {bound}</text>",
        nodes.len(),
        blocks.len(),
        critical.len()
    );
    for wave in 0..waves {
        let x = MARGIN + wave * column + PAD + node_width / 2;
        let _ = writeln!(text, "<text class=\"wave\" x=\"{x}\" y=\"50\">wave {wave}</text>");
    }
    for block in &blocks {
        if let Some(rect) = boxes.get(block.name) {
            let layer = block.layer.map(|layer| format!(" · layer {layer}")).unwrap_or_default();
            let _ = writeln!(
                text,
                "<g><rect class=\"stack\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"8\"/><text class=\"label\" x=\"{}\" y=\"{}\">{}{layer}</text></g>",
                rect.x,
                rect.y,
                rect.width,
                rect.height,
                rect.x + PAD,
                rect.y + 16,
                block.name
            );
        }
    }
    edges(graph, nodes, &boxes, &places, &critical, &mut text);
    for (node, rect) in &places {
        let state = states.get(&graph.node(*node).id).map(|state| state.as_str());
        let class = if critical.contains(node) { "node critical" } else { "node" };
        let class = state.map_or_else(|| class.to_owned(), |state| format!("{class} {state}"));
        let id = graph.node(*node).id.as_str();
        let title = state.map_or_else(|| id.to_owned(), |state| format!("{id}: {state}"));
        let shown: String =
            if id.chars().count() > 34 { id.chars().take(33).chain(['…']).collect() } else { id.to_owned() };
        let _ = writeln!(
            text,
            "<g class=\"{class}\" id=\"{id}\"><title>{title}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\"/><text x=\"{}\" y=\"{}\">{shown}</text></g>",
            rect.x,
            rect.y,
            rect.width,
            rect.height,
            rect.x + 8,
            rect.y + 17
        );
    }
    text.push_str("</svg>\n");
    text
}

/// The stacks that have nodes here, left to right.
fn blocks<'g>(graph: &'g Graph, nodes: &[NodeIx]) -> Vec<Block<'g>> {
    let mut cells: BTreeMap<&StackName, BTreeMap<usize, Vec<NodeIx>>> = BTreeMap::new();
    for node in nodes {
        cells.entry(&graph.node(*node).stack).or_default().entry(graph.wave(*node)).or_default().push(*node);
    }
    let mut blocks: Vec<Block<'g>> = graph
        .stacks()
        .iter()
        .filter_map(|stack| {
            let cells = cells.remove(&stack.name)?;
            let (first, last) = (*cells.keys().next()?, *cells.keys().next_back()?);
            let rows = cells.values().map(Vec::len).max().unwrap_or(0);
            Some(Block { name: &stack.name, layer: stack.layer, first, last, rows, cells })
        })
        .collect();
    blocks.sort_by_key(|block| (block.first, block.layer, block.name));
    blocks
}

fn edges(
    graph: &Graph,
    nodes: &[NodeIx],
    boxes: &BTreeMap<&StackName, Rect>,
    places: &BTreeMap<NodeIx, Rect>,
    critical: &[NodeIx],
    text: &mut String,
) {
    let place_of = |reference: &Reference| match reference {
        Reference::Stack(name) => boxes.get(name).copied(),
        Reference::Node(id) => graph.find(id).and_then(|node| places.get(&node).copied()),
    };
    for stack in graph.stacks() {
        let Some(to) = boxes.get(&stack.name) else { continue };
        for from in graph.essential_dependencies(stack).into_iter().filter_map(place_of) {
            curve(text, "between", from.right(), to.left());
        }
    }
    for node in nodes {
        let Some(to) = places.get(node) else { continue };
        for from in graph.node(*node).depends_on.iter().filter_map(place_of) {
            curve(text, "edge", from.right(), to.left());
        }
    }
    for pair in critical.windows(2) {
        if let [from, to] = pair
            && let (Some(from), Some(to)) = (places.get(from), places.get(to))
        {
            curve(text, "edge critical", from.right(), to.left());
        }
    }
}

fn curve(text: &mut String, class: &str, (x1, y1): (usize, usize), (x2, y2): (usize, usize)) {
    let bend = if x2 > x1 { (x2 - x1) / 2 } else { COLUMN_GAP };
    let (c1, c2) = (x1 + bend, x2.saturating_sub(bend));
    let _ = writeln!(text, "<path class=\"{class}\" d=\"M{x1} {y1}C{c1} {y1} {c2} {y2} {x2} {y2}\"/>");
}

fn head(width: usize, height: usize) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"dependency graph\">
<style>
text{{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#1f2937}}
.title{{font-size:15px;font-weight:600}}
.wave{{fill:#6b7280;text-anchor:middle}}
.stack{{fill:#f3f4f6;stroke:#d1d5db}}
.label{{font-weight:600;fill:#374151}}
.node rect{{fill:#fff;stroke:#64748b}}
.node.critical rect{{fill:#fff7ed;stroke:#c2410c;stroke-width:2}}
path{{fill:none}}
.edge{{stroke:#94a3b8;marker-end:url(#arrow)}}
.between{{stroke:#cbd5e1;stroke-width:3}}
.edge.critical{{stroke:#c2410c;stroke-width:2}}
</style>
<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" style=\"fill:#94a3b8\"/></marker></defs>
<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>
"
    )
}
