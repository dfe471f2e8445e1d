//! What is generated and checked in: JSON Schemas, the CLI reference, the index of errors. `make bless` writes it again.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::format::{INPUTS, KINDS, OUTPUTS, schema};
use forge_testkit::reference::{command_line, compare};

fn docs() -> PathBuf {
    forge_testkit::checkout().join("docs")
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn the_schemas_are_those_of_the_types() {
    let folder = docs().join("reference/schemas");
    let kinds = || KINDS.iter().chain(&INPUTS).chain(&OUTPUTS);
    for kind in kinds() {
        compare(&folder.join(format!("{kind}.json")), &format!("{:#}\n", schema(kind).unwrap().as_value()));
    }
    assert_eq!(names(&folder), kinds().map(|kind| format!("{kind}.json")).collect());
}

#[test]
fn the_cli_reference_is_what_help_says() {
    let mut page = String::from(
        "# Command line\n\nGenerated from `forge --help`; `make bless` writes it again.\n\nExit codes: 0 done, 1 findings or failure, 2 some of it, 3 invalid arguments, configuration or input, 4 timed out,\n5 somebody else changed it, 6 refused by policy.\nData goes to stdout, everything else to stderr.\n",
    );
    command_line(&mut page, forge::cli::command());
    compare(&docs().join("reference/cli.md"), &page);
}

#[test]
fn every_command_that_the_readme_shows_can_be_given() {
    let readme = fs::read_to_string(docs().join("../README.md")).unwrap();
    let shown: Vec<&str> = readme.lines().filter(|line| line.starts_with("forge ")).collect();
    assert!(shown.len() > 20, "{shown:?}");
    for line in shown {
        let words = line.split(" # ").next().unwrap_or(line).split_whitespace();
        if let Err(error) = forge::cli::command().try_get_matches_from(words) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn the_inputs_of_the_executor_are_those_of_its_table() {
    compare(&docs().join("reference/executor.md"), &forge_core::executor::reference());
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let pages: BTreeSet<String> =
        names(&docs().join("errors")).into_iter().filter(|name| name != "README.md").collect();
    assert_eq!(pages, Code::ALL.iter().map(|code| format!("{code}.md")).collect());
    let index = fs::read_to_string(docs().join("errors/README.md")).unwrap();
    for code in Code::ALL {
        assert!(index.contains(&format!("[{code}]({code}.md)")), "{code} is not in docs/errors/README.md");
        assert!(index.contains(code.title()), "the title of {code} is not in docs/errors/README.md");
    }
}

#[test]
fn the_picture_in_the_readme_is_the_example() {
    let example = docs().join("../examples/platform");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_forge"))
        .arg("-C")
        .arg(example)
        .args(["graph", "--environment", "dev", "--output", "svg"])
        .output()
        .unwrap();
    assert!(output.status.success());
    compare(&docs().join("reference/example.svg"), &String::from_utf8(output.stdout).unwrap());
}
