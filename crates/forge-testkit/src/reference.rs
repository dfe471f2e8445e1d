//! Pages that are generated and checked in: compared by tests, written again by `make bless`.

#![allow(clippy::panic, reason = "a comparison of tests fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Compares a file with what it should hold, or writes it if asked to.
pub fn compare(path: &Path, expected: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, expected));
        written.unwrap_or_else(|error| panic!("failed to write {}: {error}", path.display()));
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == expected, "{} is not what the code says; `make bless` writes it again", path.display());
}

/// The help of a command and of all below it, as sections of a page.
pub fn command_line(page: &mut String, command: clap::Command) {
    let path = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let mut root = command.term_width(100);
    root.build();
    section(page, &mut root, &path);
}

fn section(page: &mut String, command: &mut clap::Command, path: &str) {
    let help = command.clone().color(clap::ColorChoice::Never).render_long_help();
    let _ = write!(page, "\n## `{path}`\n\n```text\n{}\n```\n", help.to_string().trim_end());
    let shown = command.get_subcommands().filter(|child| !child.is_hide_set() && child.get_name() != "help");
    let children: Vec<String> = shown.map(|child| child.get_name().to_owned()).collect();
    for name in &children {
        if let Some(child) = command.find_subcommand_mut(name) {
            section(page, child, &format!("{path} {name}"));
        }
    }
}
