//! The reference page of the command line, generated and checked in. `make bless` writes it again.

use forge_testkit::reference::{command_line, compare};

#[test]
fn the_cli_reference_is_what_help_says() {
    let mut page = String::from(
        "# Command line of the sandbox\n\nGenerated from `forge sandbox --help`; `make bless` writes it again.\n\nExit codes: 0 done, 1 something is not well or failed, 3 invalid arguments or a machine that cannot,\n4 not well in time, 5 somebody else changes it.\n",
    );
    command_line(&mut page, forge_sandbox::cli::command());
    compare(&forge_testkit::checkout().join("docs/reference/sandbox.md"), &page);
}
