//! Every decoder of our own formats on every document.
#![no_main]
use forge_core::format::{
    ClusterFile, DependencyGraph, EnvironmentConfig, GraphOverride, Installation, ReleasePointer,
};
use forge_core::graph::Graph;
use forge_core::yaml::{Decoder, Dialect, Limits, decode_text, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = decode_text(bytes) else { return };
    let stream = read(text, Dialect::Strict, Limits::EMBEDDED);
    for node in &stream.documents {
        let mut decoder = Decoder::new("fuzz.yaml");
        ReleasePointer::decode(&mut decoder, node);
        EnvironmentConfig::decode(&mut decoder, node);
        ClusterFile::decode(&mut decoder, node);
        Installation::decode(&mut decoder, node);
        let over = GraphOverride::decode(&mut decoder, node);
        if let Some(graph) = DependencyGraph::decode(&mut decoder, node) {
            let build = Graph::build(&graph, "graph.yaml", over.as_ref().map(|over| ("dev/graph.yaml", over)), &[]);
            assert_eq!(build.graph.is_some(), build.findings.is_empty());
        }
    }
});
