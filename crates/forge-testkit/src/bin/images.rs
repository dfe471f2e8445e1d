//! Makes the images of a release from what `tools/image` built, and pushes them.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forge_testkit::images::{self, ImagesError, Made, Size};
use jiff::Timestamp;

/// Makes the images of a release
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build helm for every processor
    Helm {
        /// Where to: a folder of its own for each
        work: PathBuf,
    },
    /// Put the images together, and print how large they are
    Write {
        /// Where what was built is
        work: PathBuf,
        /// Where to
        out: PathBuf,
        /// The lock file of what was built
        #[arg(long, default_value = "Cargo.lock")]
        lock: PathBuf,
    },
    /// Push them, and print how they are called by digest
    Push {
        /// Where they are
        out: PathBuf,
        /// The registry, and what goes in front of their names; http:// says that it speaks plain HTTP
        to: String,
    },
}

fn main() -> ExitCode {
    let ended = match Arguments::parse().command {
        Command::Helm { work } => images::helm::build(&work).map(|()| (String::new(), ExitCode::SUCCESS)),
        Command::Write { work, out, lock } => match time() {
            Ok(time) => images::write(&work, &lock, &out, time).map(|made| table(&made)),
            Err(text) => {
                let _ = writeln!(io::stderr(), "SOURCE_DATE_EPOCH is not a number of seconds: `{text}`");
                return ExitCode::from(3);
            }
        },
        Command::Push { out, to } => pushed(&out, &to),
    };
    let (said, code) = ended.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "{error}");
        (String::new(), ExitCode::FAILURE)
    });
    if io::stdout().write_all(said.as_bytes()).is_ok() { code } else { ExitCode::FAILURE }
}

/// The time that images carry: none, unless somebody says otherwise as other tools for reproducible builds take it.
fn time() -> Result<Timestamp, String> {
    let Some(text) = env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty()) else {
        return Ok(Timestamp::UNIX_EPOCH);
    };
    let text = text.to_string_lossy().into_owned();
    let seconds = text.parse::<i64>().ok().filter(|seconds| *seconds >= 0);
    seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()).ok_or(text)
}

fn pushed(out: &std::path::Path, to: &str) -> Result<(String, ExitCode), ImagesError> {
    let references = images::push::push(out, to)?;
    Ok((references.iter().map(|reference| format!("{reference}\n")).collect(), ExitCode::SUCCESS))
}

/// How large they are, beside what they may be.
fn table(made: &[Made]) -> (String, ExitCode) {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let mut text = String::new();
    for made in made {
        for size in &made.sizes {
            let Size { architecture, unpacked, packed, limit, .. } = size;
            text.push_str(&format!(
                "{:<9} {architecture}  {:>5.1} MB unpacked of {:.0}, {:>5.1} MB packed{}\n",
                made.name,
                megabytes(*unpacked),
                megabytes(*limit),
                megabytes(*packed),
                if size.is_over() { "  TOO LARGE" } else { "" },
            ));
        }
        text.push_str(&format!("{:<9} {}\n", made.name, made.digest));
    }
    let over = made.iter().flat_map(|made| &made.sizes).any(Size::is_over);
    (text, if over { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
